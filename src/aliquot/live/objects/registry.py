"""The objects and blobs of all namespaces: what is stored, how much each namespace may store, and what is removed.

A blob is named by its digest, an object by a key that refers to a blob. Nothing is shared between namespaces, not even
the knowledge that a blob exists. A blob stays while an object or a kernel graph names it, and a day after its upload.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.clock import now_ms
from aliquot.core.units import GIB
from aliquot.live.node.output_memory import OutputMemory
from aliquot.live.objects.compiled import CompiledGraphs
from aliquot.live.objects.files import BlobFiles, IncomingFile, folder_name
from aliquot.live.objects.pending import PendingObjects
from aliquot.live.store.base import Delete, Document, DocumentChange, Store

COLLECTION = "object"
DEFAULT_OBJECT_BYTES = 2 * GIB
DEFAULT_NAMESPACE_BYTES = 8 * GIB
UNNAMED_KEPT_S = 86_400.0
SWEEP_EVERY_S = 3600.0
_FULL = "The objects of a namespace have at most {} bytes (--limit objects_per_namespace_bytes). Delete some."

NamedDigests = Callable[[str], Iterable[str]]  # digests that the graphs of a namespace name


class StorageFullError(Exception):
    """A namespace stores as much as it may, or the object is too large. The text is for tenants."""


class ObjectRecord(Struct, frozen=True, rename="camel"):
    """An object: the digest of its bytes, its size, and when it was written."""

    key: str
    sha256: str
    size: int
    updated: int  # milliseconds since 1970
    expires: int = 0  # the same, or 0 if it stays


class ObjectRegistry:
    """Stores blobs and objects. Used on the event loop's thread."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        object_bytes: int = DEFAULT_OBJECT_BYTES,
        namespace_bytes: int = DEFAULT_NAMESPACE_BYTES,
    ) -> None:
        self.files = BlobFiles(folder)
        self.pending = PendingObjects()
        self.compiled = CompiledGraphs(folder.parent / "compiled")
        self.object_bytes = object_bytes
        self._namespace_bytes = namespace_bytes
        self._store = store
        self._objects: dict[str, dict[str, ObjectRecord]] = {}
        self._blobs: dict[str, dict[str, tuple[int, float]]] = {}  # by folder and digest: size and time of upload
        self._incoming: dict[str, int] = {}  # bytes by folder that are being received

    async def load(self) -> None:
        """Read what an earlier server has stored."""
        self._blobs = await asyncio.to_thread(self.files.load)
        for document in await self._store.scan(COLLECTION):
            record = msgspec.json.decode(document.body, type=ObjectRecord)
            self._objects.setdefault(document.namespace, {})[record.key] = record

    # --- reading ------------------------------------------------------------------------------------------

    def find(self, namespace: str, key: str) -> ObjectRecord | None:
        """Return an object, or None if there is none or its time is over."""
        found = self._objects.get(namespace, {}).get(key)
        return None if found is None or _is_over(found, now_ms()) else found

    def all(self, namespace: str, prefix: str = "") -> list[ObjectRecord]:
        """Return the objects of a namespace whose keys begin so, sorted by key."""
        own, now = self._objects.get(namespace, {}), now_ms()
        return [own[key] for key in sorted(own) if key.startswith(prefix) and not _is_over(own[key], now)]

    def blob_size(self, namespace: str, digest: str) -> int | None:
        """Return the size of a blob, or None if the namespace has none of this digest."""
        found = self._blobs.get(folder_name(namespace), {}).get(digest)
        return None if found is None else found[0]

    def used_bytes(self, namespace: str) -> int:
        folder = folder_name(namespace)
        return sum(size for size, _ in self._blobs.get(folder, {}).values()) + self._incoming.get(folder, 0)

    # --- writing ------------------------------------------------------------------------------------------

    def take_room(self, namespace: str, file: IncomingFile, more: int) -> None:
        """Count bytes that are about to be written. Raises `StorageFullError`."""
        if file.size + more > self.object_bytes:
            raise StorageFullError(f"An object has at most {self.object_bytes} bytes (--limit object_bytes).")
        if self.used_bytes(namespace) + more > self._namespace_bytes:
            raise StorageFullError(_FULL.format(self._namespace_bytes))
        folder = folder_name(namespace)
        self._incoming[folder] = self._incoming.get(folder, 0) + more

    def give_room_back(self, namespace: str, file: IncomingFile) -> None:
        """Stop counting a file that is not received any more."""
        self._give_back(namespace, file.size)

    def _give_back(self, namespace: str, size: int) -> None:
        folder = folder_name(namespace)
        self._incoming[folder] -= size
        if not self._incoming[folder]:
            del self._incoming[folder]

    def lacks_room(self, namespace: str, sizes: Iterable[int]) -> str | None:
        """Return why files of these sizes cannot be stored now, or None if they can."""
        sizes = list(sizes)
        if any(size > self.object_bytes for size in sizes):
            return f"An object has at most {self.object_bytes} bytes (--limit object_bytes)."
        if self.used_bytes(namespace) + sum(sizes) > self._namespace_bytes:
            return _FULL.format(self._namespace_bytes)
        return None

    async def put_memory(
        self,
        namespace: str,
        key: str,
        memory: OutputMemory,
        expires: int = 0,
        wanted: Callable[[], bool] = lambda: True,
    ) -> str:
        """Store what a sandbox has written as an object, if it is still wanted then. Return the digest.

        Raises `StorageFullError` or `OSError`.
        """
        file = self.files.receive()
        try:
            if (problem := self.lacks_room(namespace, [memory.size])) is not None:
                raise StorageFullError(problem)
            self.take_room(namespace, file, memory.size)
            try:
                digest = await asyncio.to_thread(_fill, file, memory)
                if self.blob_size(namespace, digest) is None:
                    await self.keep_blob(namespace, file, digest)
            finally:
                self._give_back(namespace, memory.size)
        finally:
            file.discard()
        if wanted():
            await self.put(namespace, ObjectRecord(key, digest, memory.size, now_ms(), expires))
        return digest

    async def keep_blob(self, namespace: str, file: IncomingFile, digest: str) -> None:
        """Store a received file under its digest. It is on disk on return."""
        await asyncio.to_thread(self.files.keep, file, namespace, digest)
        self._blobs.setdefault(folder_name(namespace), {})[digest] = (file.size, time.time())

    async def put(self, namespace: str, record: ObjectRecord) -> None:
        """Name a blob that is stored. Durable."""
        await self._store.put(COLLECTION, Document(namespace, record.key, msgspec.json.encode(record)))
        self.pending.replaced(namespace, record.key)
        self._objects.setdefault(namespace, {})[record.key] = record

    async def delete(self, namespace: str, key: str) -> None:
        """Delete an object. Its blob is removed later, if nothing else names it."""
        self.pending.replaced(namespace, key)
        await self._store.apply([Delete(COLLECTION, namespace, key)])
        self._objects.get(namespace, {}).pop(key, None)

    # --- removing -----------------------------------------------------------------------------------------

    def sweep(self, namespace: str, named: Iterable[str], *, now_s: float) -> int:
        """Remove the blobs that nothing names and that are older than a day. Return how many there were."""
        blobs = self._blobs.get(folder_name(namespace), {})
        kept = {record.sha256: None for record in self.all(namespace)} | dict.fromkeys(named)
        old = [
            digest for digest, (_, time_s) in blobs.items() if digest not in kept and now_s - time_s > UNNAMED_KEPT_S
        ]
        for digest in old:
            del blobs[digest]
            self.files.delete(namespace, digest)
        return len(old)

    async def delete_expired(self, namespace: str, now: int) -> int:
        """Delete the objects whose time is over. Return how many there were."""
        over = [key for key, record in self._objects.get(namespace, {}).items() if _is_over(record, now)]
        for key in over:
            await self.delete(namespace, key)
        return len(over)

    async def sweep_repeatedly(self, namespaces: Callable[[], Iterable[str]], named: NamedDigests) -> None:
        """Remove blobs that nothing names, from time to time."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            for namespace in list(namespaces()):
                await self.delete_expired(namespace, now_ms())
                self.sweep(namespace, named(namespace), now_s=time.time())

    # --- data of namespaces that are deleted (`NamespaceData`) --------------------------------------------------

    def deletions(self, namespace: str) -> list[DocumentChange]:
        return [Delete(COLLECTION, namespace, key) for key in self._objects.get(namespace, {})]

    def forget(self, namespace: str) -> None:
        self._objects.pop(namespace, None)
        self._blobs.pop(folder_name(namespace), None)
        self.files.delete_all(namespace)
        self.compiled.delete_all(folder_name(namespace))


def _is_over(record: ObjectRecord, now: int) -> bool:
    return bool(record.expires) and record.expires <= now


def _fill(file: IncomingFile, memory: OutputMemory) -> str:
    """Write what the memory holds to a file, and return its digest. Blocks."""
    for piece in memory.pieces():
        file.write(piece)
    return file.finish()
