"""Nodes: machines with devices, the memory of their hosts, and the data that they hold.

A node gets no new work while it is suspected to be lost, or is being drained. Its devices are then not among those that
policies see. A machine alone is one node without a name.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aliquot.core.host_memory import HostMemory
from aliquot.core.interfaces import Expiry
from aliquot.core.model import NodeSpec

if TYPE_CHECKING:
    from aliquot.core.device import Device
    from aliquot.core.flow import Flow


class Node:
    """One node: its devices, its host's memory, and the part of each dataset that is on it."""

    __slots__ = ("devices", "draining", "expiry", "holdings", "host", "spec", "suspected", "timer_at")

    def __init__(self, spec: NodeSpec, tenants: Mapping[str, object]) -> None:
        self.spec = spec
        self.devices: dict[str, Device] = {}
        self.host = HostMemory(tenants)
        self.holdings: dict[str, int] = {}  # bytes by dataset
        self.suspected = self.draining = False
        self.expiry: Expiry | None = None  # when calls that still run end, while it is being drained
        self.timer_at: float | None = None

    @property
    def open(self) -> bool:
        """Return whether it may get new work."""
        return not self.suspected and not self.draining


class NodeWait:
    """A flow that no device can run since a node was lost, with the time until which its calls wait for another."""

    __slots__ = ("expiry", "flow", "timer_at")

    def __init__(self, flow: "Flow", expiry: Expiry) -> None:
        self.flow = flow
        self.expiry: Expiry | None = expiry
        self.timer_at: float | None = None
