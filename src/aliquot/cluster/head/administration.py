"""The operator's view of nodes, and changes to them."""

import asyncio
from collections.abc import Callable

import structlog

from aliquot.cluster.head.fleet import Fleet
from aliquot.cluster.head.registry import NodeRecord, NodeRegistry
from aliquot.cluster.head.remote_node import RemoteNode
from aliquot.cluster.messages import Refused
from aliquot.cluster.names import HEAD
from aliquot.cluster.tokens import JoinToken
from aliquot.core.model import DeviceSpec
from aliquot.live.node.cluster import NodeAdministration, NodeConflictError, NodeDevice, NodeItem, NodeToken
from aliquot.live.node.local import LocalNode
from aliquot.live.store.base import StoreError
from aliquot.live.store.errors import NotFoundError
from aliquot.version import __version__

log = structlog.get_logger("aliquot.cluster")


class Administration(NodeAdministration):
    """Answers the operator's requests from the fleet and the registry."""

    def __init__(
        self,
        fleet: Fleet,
        registry: NodeRegistry,
        local: LocalNode,
        token: Callable[[], JoinToken],
        rotate: Callable[[], None],
        address: Callable[[], str],
    ) -> None:
        self._fleet = fleet
        self._registry = registry
        self._local = local
        self._token = token
        self._rotate = rotate
        self._address = address
        self._tasks: set[asyncio.Task[None]] = set()

    def list(self) -> list[NodeItem]:
        own = NodeItem(
            *(HEAD, "ready", "", __version__, None, _devices(self._local.devices)),
            sandboxes=len(self._local.usage()),
            host_memory_bytes=0,
            joined=None,
            missing=list(self._local.unenforced),
        )
        return [own, *(self._item(record) for record in self._registry.all())]

    def get(self, name: str) -> NodeItem:
        found = next((item for item in self.list() if item.name == name), None)
        if found is None:
            raise NotFoundError(f"node {name}")
        return found

    async def drain(self, name: str, deadline_s: float | None) -> NodeItem:
        self._check(name)
        self._fleet.drain(name, deadline_s)
        await self._registry.update(name, draining=True)
        return self.get(name)

    async def undrain(self, name: str) -> NodeItem:
        self._check(name)
        self._fleet.undrain(name)
        await self._registry.update(name, draining=False)
        return self.get(name)

    async def remove(self, name: str, *, force: bool) -> NodeItem:
        self._check(name)
        item = self.get(name)
        node = self._fleet.nodes.get(name)
        if item.sandboxes and not force:
            raise NodeConflictError(
                f"node {name} has {item.sandboxes} sandboxes; drain it first, or remove it with --force"
            )
        await self._registry.remove(name)
        self._fleet.draining.pop(name, None)
        if node is not None and self._fleet.nodes.get(name) is node:
            node.say_last(Refused(f"the operator has removed node {name}", again=False))
            self._fleet.lose(node, "the operator has removed it")
        else:
            self._fleet.give_up(name, "the operator has removed it")
        return item

    def token(self, *, rotate: bool) -> NodeToken:
        if rotate:
            self._rotate()
        return NodeToken(self._token().text(), self._address())

    def note_devices(self, node: RemoteNode) -> None:
        """Store what a node has, so that the next head knows it before the node connects."""
        task = asyncio.get_running_loop().create_task(self._store_devices(node))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store_devices(self, node: RemoteNode) -> None:
        try:
            await self._registry.update(node.name, devices=node.devices, host_memory_bytes=node.host_memory_bytes)
        except StoreError as error:
            log.warning("the devices of a node could not be stored", node=node.name, error=str(error))

    def _check(self, name: str) -> None:
        """Raise `NotFoundError` or `NodeConflictError` unless it is a node that has joined."""
        if name == HEAD:
            raise NodeConflictError("the head's own devices cannot be drained or removed; stop the server instead")
        if self._registry.get(name) is None:
            raise NotFoundError(f"node {name}")

    def _item(self, record: NodeRecord) -> NodeItem:
        node = self._fleet.nodes.get(record.name)
        if node is None:
            state = "draining, away" if record.draining else "away"
            return NodeItem(
                *(record.name, state, "", "", None, _devices(record.devices)),
                sandboxes=0,
                host_memory_bytes=record.host_memory_bytes,
                joined=record.joined_ms,
                missing=[],
            )
        return NodeItem(
            record.name,
            self._state(node),
            node.address,
            node.version,
            None if node.round_trip_s is None else round(node.round_trip_s * 1000, 3),
            _devices(node.devices),
            sandboxes=len(node.sandboxes),
            host_memory_bytes=node.host_memory_bytes,
            joined=record.joined_ms,
            missing=list(node.missing),
        )

    def _state(self, node: RemoteNode) -> str:
        if not node.ready:
            return "joining"
        if node.liveness.suspected:
            return "suspected"
        if node.leaving or node.name in self._fleet.draining:
            return "draining" if node.sandboxes else "drained"
        return "ready"


def _devices(devices: tuple[DeviceSpec, ...]) -> list[NodeDevice]:
    return [NodeDevice(each.name, each.kind, each.memory_bytes, each.concurrency) for each in devices]
