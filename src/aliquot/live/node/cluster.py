"""The interface of a cluster: what the server gives to it, and what it offers. `aliquot.cluster` implements it."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from aliquot.core.model import DeviceSpec, NodeSpec
from aliquot.live.node.base import Node
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.node.local import LocalNode
from aliquot.live.node.network.messages import RelaySettings
from aliquot.live.store.base import Store


class ClusterParts(NamedTuple):
    """The parts of the server that a cluster needs."""

    local: LocalNode
    store: Store
    data: Path
    relay: RelaySettings
    result_bytes: int
    replies_bytes: int
    environments: EnvironmentLimits
    serve_api: Callable[[socket.socket], None]  # takes connections to the platform's API


class NodeDevice(Struct, rename="camel"):
    """A device of a node."""

    name: str
    kind: str
    memory_bytes: int | None
    slots: int


class NodeItem(Struct, rename="camel"):
    """A node as people see it."""

    name: str
    state: str  # ready, suspected, draining, drained, joining or away
    address: str
    version: str
    round_trip_ms: float | None
    devices: list[NodeDevice]
    sandboxes: int
    host_memory_bytes: int
    joined: int | None
    missing: list[str]  # features that the machine lacks


class NodeToken(Struct):
    """A token for machines that join, and the address to which they connect."""

    token: str
    address: str  # of the port for nodes


class NodeConflictError(Exception):
    """The node cannot be changed so now. The text says why."""


class NodeAdministration(Protocol):
    """The operator's questions about nodes and changes to them. Raises `NotFoundError` for one that is not known."""

    def list(self) -> list[NodeItem]:
        """Return all nodes, the head's own devices first."""
        ...

    def get(self, name: str) -> NodeItem: ...

    async def drain(self, name: str, deadline_s: float | None) -> NodeItem:
        """Give the node no more work. After the deadline calls that still run there end."""
        ...

    async def undrain(self, name: str) -> NodeItem:
        """Give the node work again."""
        ...

    async def remove(self, name: str, *, force: bool) -> NodeItem:
        """Revoke what lets the node connect. Without force, a node with sandboxes raises `NodeConflictError`."""
        ...

    def token(self, *, rotate: bool) -> NodeToken:
        """Return the token for machines that join. If it is rotated, the one before is refused from now on."""
        ...


class MembershipListener(Protocol):
    """Receives the events of nodes: the service."""

    def node_joined(self, spec: NodeSpec, devices: tuple[DeviceSpec, ...]) -> None:
        """Handle another machine of the cluster that takes commands from now on."""
        ...

    def node_suspected(self, node: str) -> None:
        """Handle the silence of a node, whose runs may go on."""
        ...

    def node_back(self, node: str) -> None:
        """Handle a node that was suspected or drained, and may get work again."""
        ...

    def node_draining(self, node: str, deadline_s: float | None) -> None:
        """Handle a node that gets no more work. Runs that have not ended after the deadline are ended."""
        ...

    def node_lost(self, node: str, reason: str, sandboxes: tuple[int, ...]) -> None:
        """Handle the loss of a node with these sandboxes, of which nothing else is reported."""
        ...


class ClusterHead(Protocol):
    """The head of a cluster."""

    @property
    def node(self) -> Node:
        """All nodes as one."""
        ...

    @property
    def administration(self) -> NodeAdministration: ...

    @property
    def join_command(self) -> str:
        """The command by which another machine joins, for people."""
        ...

    async def start(self, listener: MembershipListener) -> None:
        """Let nodes connect. All functions are deployed."""
        ...

    async def stop(self) -> None: ...


MakeCluster: TypeAlias = Callable[[ClusterParts], ClusterHead]
