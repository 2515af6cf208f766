"""Volumes of namespaces: their names and sizes, in memory and in the store. The storage agent has their files."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aliquot.clock import now_ms
from aliquot.core.errors import InputError
from aliquot.core.units import GIB, MIB
from aliquot.live.store.base import Delete, Document, DocumentChange, Put, Store
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.ids import Ids
from aliquot.storage.volumes.records import VolumeSpec

COLLECTION = "volumes"
VOLUME_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_NAME = re.compile(VOLUME_NAME)
MAX_VOLUMES = 100  # of a namespace
MAX_VOLUMES_BYTES = 20 * GIB  # the sizes of a namespace's volumes together
DEFAULT_VOLUME_BYTES = 10 * GIB
MIN_VOLUME_BYTES = MIB
OnVolumeChange = Callable[["Volume | None", "Volume | None"], None]  # called with the old and the new record


class TooManyVolumesError(Exception):
    """The namespace has as many volumes as it may. The text says what is allowed."""


class VolumeSizeError(Exception):
    """The sizes of the namespace's volumes together would be more than it may have. The text says what is allowed."""


class VolumeInUseError(Exception):
    """Functions name the volume, so it is not deleted. The text says which."""


class Volume(Struct, frozen=True):
    """A volume of a namespace."""

    namespace: str
    name: str
    id: str  # the name of its folder; a later volume of the same name has another one
    max_bytes: int
    created: int  # epoch ms

    @property
    def spec(self) -> VolumeSpec:
        return VolumeSpec(self.id, self.max_bytes)


class VolumeRegistry:
    """The volumes of all namespaces. A change is durable before it counts.

    It implements the catalogue's `NamespaceData`.
    """

    def __init__(self, store: Store, on_change: OnVolumeChange | None = None) -> None:
        self._store = store
        self._on_change = on_change
        self._ids = Ids()
        self._by_name: dict[str, dict[str, Volume]] = {}  # by namespace

    async def load(self) -> None:
        """Load all volumes from the store. Called at start."""
        for document in await self._store.scan(COLLECTION):
            volume = msgspec.json.decode(document.body, type=Volume)
            self._by_name.setdefault(volume.namespace, {})[volume.name] = volume

    # --- reading ------------------------------------------------------------------------------------------

    def everywhere(self) -> list[Volume]:
        """Return the volumes of all namespaces."""
        return [volume for volumes in self._by_name.values() for volume in volumes.values()]

    def all(self, namespace: str) -> list[Volume]:
        found = self._by_name.get(namespace, {})
        return [found[name] for name in sorted(found)]

    def find(self, namespace: str, name: str) -> Volume:
        """Return a volume. Raises `NotFoundError`."""
        found = self._by_name.get(namespace, {}).get(name)
        if found is None:
            raise NotFoundError(f"volume {name}")
        return found

    def ids(self, namespace: str, names: Sequence[str]) -> dict[str, str]:
        """Return the ids of a namespace's volumes by name, without those that it does not have."""
        known = self._by_name.get(namespace, {})
        return {name: known[name].id for name in names if name in known}

    def reason_unavailable(self, namespace: str, names: Sequence[str], tenant: str) -> str | None:
        """Return why functions of a namespace do not get these volumes when a tenant calls them, or None."""
        if names and tenant != namespace:
            return (
                f"annotation volumes: a function of /{namespace} gets its volumes only in its own namespace; namespace "
                f"{tenant} cannot call it"
            )
        known = self._by_name.get(namespace, {})
        for name in names:
            if name not in known:
                there = f"there are {', '.join(sorted(known))}" if known else "there are none"
                return (
                    f"annotation volumes: namespace {namespace} has no volume '{name}'; {there}; make it with: "
                    f"aliquot volume create {name}"
                )
        return None

    # --- writing ------------------------------------------------------------------------------------------

    async def put(
        self, namespace: str, name: str, max_bytes: int, *, max_volumes: int, max_total_bytes: int | None
    ) -> Volume:
        """Create a volume, or change the size of one. Durable. Call within `Catalogue.writing`.

        Raises `InputError`, `TooManyVolumesError` and `VolumeSizeError`.
        """
        _check(name, max_bytes)
        known = self._by_name.get(namespace, {})
        old = known.get(name)
        if old is None and len(known) >= max_volumes:
            counts = f"(count: {len(known)}, allowed: {max_volumes})"
            raise TooManyVolumesError(f"Too many volumes in the namespace {counts}.")
        others = sum(volume.max_bytes for volume in known.values() if volume.name != name)
        grows = old is None or max_bytes > old.max_bytes
        if max_total_bytes is not None and grows and others + max_bytes > max_total_bytes:
            raise VolumeSizeError(
                f"size: {max_bytes} bytes do not fit: the namespace's other volumes have {others} bytes, and all "
                f"together may have {max_total_bytes}; take a smaller size, delete a volume, or ask the operator"
            )
        new = replace(old or Volume(namespace, name, self._ids(), max_bytes, now_ms()), max_bytes=max_bytes)
        document = Document(namespace, name, msgspec.json.encode(new))
        await self._write([Put(COLLECTION, document)], lambda: self._set(old, new))
        return new

    async def delete(self, volume: Volume, users: Iterable[str], *, force: bool) -> None:
        """Delete a volume. Durable. Call within `Catalogue.writing`. Raises `VolumeInUseError` if it has users."""
        if (names := ", ".join(users)) and not force:
            raise VolumeInUseError(
                f"volume '{volume.name}' is named by {names}; delete these functions or deploy them without it first, "
                "or delete it by force, after which they fail"
            )
        await self._write(self._deletion(volume), lambda: self._set(volume, None))

    async def _write(self, changes: list[DocumentChange], update_memory: Callable[[], None]) -> None:
        """Change the store, then memory. It is shielded, so that a cancelled caller cannot leave them different."""

        async def write() -> None:
            await self._store.apply(changes)
            update_memory()

        await asyncio.shield(write())

    def _set(self, old: Volume | None, new: Volume | None) -> None:
        if new is not None:
            self._by_name.setdefault(new.namespace, {})[new.name] = new
        elif old is not None:
            self._by_name[old.namespace].pop(old.name, None)
        if self._on_change is not None:
            self._on_change(old, new)

    @staticmethod
    def _deletion(volume: Volume) -> list[DocumentChange]:
        return [Delete(COLLECTION, volume.namespace, volume.name)]

    # --- NamespaceData ------------------------------------------------------------------------------------

    def deletions(self, namespace: str) -> list[DocumentChange]:
        """Return the changes that delete the namespace's volumes from the store."""
        return [change for volume in self.all(namespace) for change in self._deletion(volume)]

    def forget(self, namespace: str) -> None:
        """Delete the namespace's volumes, of which the store knows no longer."""
        for volume in self.all(namespace):
            self._set(volume, None)
        self._by_name.pop(namespace, None)


def _check(name: str, max_bytes: int) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"name: '{name[:100]}' cannot name a volume; it takes letters, digits and . _ -, at most 100, a letter or "
            "digit first"
        )
    if max_bytes < MIN_VOLUME_BYTES:
        raise InputError(f"size: a volume takes at least {MIN_VOLUME_BYTES} bytes, not {max_bytes}")
