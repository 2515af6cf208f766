"""The nodes that have joined the cluster, by name: documents in the store, so that every head knows them."""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.live.store.base import Delete, Document, Put, Store

COLLECTION = "node"
_encode = msgspec.json.Encoder().encode


class NodeRecord(Struct, frozen=True):
    """A node that may connect."""

    name: str
    identity: str  # random text of the agent
    certificate: str  # its digest; empty without TLS
    joined_ms: int
    secret: bytes = b""  # by which it shows who it is without TLS
    draining: bool = False
    devices: tuple[DeviceSpec, ...] = ()  # when it was last there, by the names of the scheduler
    host_memory_bytes: int = 0


_decode = msgspec.json.Decoder(NodeRecord).decode


class NodeRegistry:
    """Holds the records in memory, and writes each change to the store before it counts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[str, NodeRecord] = {}

    async def load(self) -> None:
        """Read all records."""
        for document in await self._store.scan(COLLECTION):
            self._records[document.name] = _decode(document.body)

    def get(self, name: str) -> NodeRecord | None:
        return self._records.get(name)

    def all(self) -> list[NodeRecord]:
        """Return all records in the order of names."""
        return [self._records[name] for name in sorted(self._records)]

    async def join(self, record: NodeRecord) -> None:
        """Add a node, or replace what is known of the same one. Raises `InputError` if the name is in use."""
        known = self._records.get(record.name)
        if known is not None and known.identity != record.identity:
            raise InputError(
                f"the name '{record.name}' is in use by another machine; give this one --name, or remove the other "
                f"with `aliquot node remove {record.name}`"
            )
        await self._write(record)

    async def update(self, name: str, **changes: object) -> None:
        """Change a node's record, if it is known."""
        known = self._records.get(name)
        if known is not None and (changed := replace(known, **changes)) != known:
            await self._write(changed)

    async def remove(self, name: str) -> None:
        """Forget a node. What it shows to connect is refused from now on."""
        self._records.pop(name, None)
        await self._store.apply([Delete(COLLECTION, "", name)])

    async def _write(self, record: NodeRecord) -> None:
        self._records[record.name] = record
        await self._store.apply([Put(COLLECTION, Document("", record.name, _encode(record)))])
