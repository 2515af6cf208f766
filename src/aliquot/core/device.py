"""A device's slots and memory, and the eviction orders of its idle sandboxes."""

from math import inf
from typing import TYPE_CHECKING

from aliquot.core.device_index import DeviceClass, DeviceGroup, DeviceIndex
from aliquot.core.interfaces import Eviction
from aliquot.core.model import CPU, DeviceSpec
from aliquot.core.nodes import Node
from aliquot.core.records import Sandbox, Slice, StopCandidate
from aliquot.core.tenant_slots import TenantSlots

if TYPE_CHECKING:
    from aliquot.core.admission.lanes import DevicePlan
    from aliquot.core.flow import Flow
    from aliquot.core.provisioning.relocation import SandboxMove


class Device:
    """One device: its slots, the memory in use, and the sandboxes on it."""

    __slots__ = (
        "active_slices", "bounded", "default_share", "device_class", "evictable_bytes", "flows", "freed", "group",
        "host", "index", "kept", "kept_bytes", "last_dispatch", "level", "listed", "max_slots", "measured_utilisation",
        "memory_bytes", "memory_order", "moves", "node", "plan", "pool_order", "pool_slots", "resident_bytes",
        "running", "sandboxes", "shares_used", "sliced", "slots", "spec", "taken", "tenant_slots", "unused",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        spec: DeviceSpec,
        node: Node,
        pool_slots: int | None,
        memory: Eviction[Sandbox],
        pool: Eviction[StopCandidate],
        tenant_slots: TenantSlots | None = None,
    ) -> None:
        self.index = index
        self.spec = spec
        self.node = node
        self.host = node.host
        self.default_share = 1 / spec.concurrency  # of a function that declares none
        self.sliced = spec.kind != CPU  # declared shares count there
        self.bounded = spec.memory_bytes is not None  # only then is anything swapped out
        self.memory_bytes: float = inf if spec.memory_bytes is None else spec.memory_bytes
        self.pool_slots = None if spec.memory_bytes is None else pool_slots  # maximum number of sandboxes
        # Maximum number of invocations in flight, without extra slots. Each of them needs a pool slot, too.
        self.max_slots = spec.concurrency if self.pool_slots is None else min(spec.concurrency, self.pool_slots)
        self.slots = self.max_slots if node.open else 0  # 0 while it gets no work
        self.tenant_slots = tenant_slots  # counts slots by tenant if the device has extra ones
        self.memory_order = memory  # idle, resident sandboxes that may be swapped out
        self.pool_order = pool  # idle sandboxes that may be stopped; used only when the pool is bounded
        self.device_class: DeviceClass  # set by the index, as are the next four
        self.group: DeviceGroup
        self.listed: DeviceIndex | None = None
        self.level = 0
        self.taken = 0.0
        self.freed: tuple[dict[int, Device], ...] = ()  # for each domain, devices with something freed
        self.flows: dict[int, Flow] = {}  # those that have had an idle sandbox here
        self.plan: DevicePlan | None = None  # of promised calls, while there are any
        self.running = 0
        self.shares_used: float = 0
        self.measured_utilisation: float | None = None
        self.resident_bytes = 0
        self.evictable_bytes = 0
        self.kept: dict[
            int, Sandbox
        ] = {}  # sandboxes kept for sessions, least recently used first; not in the two orders
        self.kept_bytes = 0
        self.last_dispatch = -1
        self.active_slices: dict[int, Slice] = {}  # by sandbox; used only when allotments depend on each other
        self.sandboxes: dict[int, Sandbox] = {}
        self.unused: dict[int, Sandbox] = {}  # started ahead and never used, which make room first
        self.moves: dict[int, SandboxMove] = {}  # of sandboxes that leave it or come to it

    @property
    def utilisation(self) -> float:
        """Return the measured utilisation of a busy device, or the shares in use when there is no fresh measurement."""
        measured = self.measured_utilisation
        return self.shares_used if measured is None or not self.running else measured

    @property
    def pool_full(self) -> bool:
        """Return whether a sandbox must be stopped before another can start."""
        return self.pool_slots is not None and len(self.sandboxes) >= self.pool_slots

    @property
    def free_bytes(self) -> float:
        return self.memory_bytes - self.resident_bytes

    def take_slot(self, share: float, tenant: str) -> None:
        self.running += 1
        self.shares_used += share
        if self.tenant_slots is not None:
            self.tenant_slots.take(tenant)
        if self.listed is not None:
            self.listed.update(self)

    def free_slot(self, share: float, tenant: str) -> None:
        self.running -= 1
        if self.tenant_slots is not None:
            self.tenant_slots.free(tenant)
        # Resetting the sum when nothing runs keeps rounding errors from adding up.
        self.shares_used = self.shares_used - share if self.running else 0
        for freed in self.freed:
            freed[self.index] = self
        if self.listed is not None:
            self.listed.update(self)

    def note_freed(self) -> None:
        """Record that memory was freed, so that policies try flows that wait for it."""
        for freed in self.freed:
            freed[self.index] = self
