"""A device's slots and memory, and the eviction orders of its idle sandboxes."""

from math import inf

from aliquot.core.interfaces import Eviction
from aliquot.core.model import DeviceSpec
from aliquot.core.records import Sandbox, Slice
from aliquot.core.tenant_slots import TenantSlots


class Device:
    """One device: its slots, the memory in use, and the sandboxes on it."""

    __slots__ = (
        "active_slices", "evictable_bytes", "index", "kept", "kept_bytes", "last_dispatch", "measured_utilisation",
        "memory_order", "pool_order", "releases", "resident_bytes", "running", "sandboxes", "shares_used", "slots",
        "spec", "tenant_slots",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        spec: DeviceSpec,
        slots: int,
        memory: Eviction[Sandbox],
        pool: Eviction[Sandbox],
        tenant_slots: TenantSlots | None = None,
    ) -> None:
        self.index = index
        self.spec = spec
        self.slots = slots  # maximum number of invocations in flight, without extra slots
        self.tenant_slots = tenant_slots  # counts slots by tenant if the device has extra ones
        self.memory_order = memory  # idle, resident sandboxes that may be swapped out
        self.pool_order = pool  # idle sandboxes that may be stopped; used only when the pool is bounded
        self.running = 0
        self.releases = 0  # number of times that a slot or memory was freed
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

    @property
    def utilisation(self) -> float:
        """Return the measured utilisation of a busy device, or the shares in use when there is no fresh measurement."""
        measured = self.measured_utilisation
        return self.shares_used if measured is None or not self.running else measured

    @property
    def free_bytes(self) -> float:
        return inf if self.spec.memory_bytes is None else self.spec.memory_bytes - self.resident_bytes

    def take_slot(self, share: float, tenant: str) -> None:
        self.running += 1
        self.shares_used += share
        if self.tenant_slots is not None:
            self.tenant_slots.take(tenant)

    def free_slot(self, share: float, tenant: str) -> None:
        self.running -= 1
        if self.tenant_slots is not None:
            self.tenant_slots.free(tenant)
        self.releases += 1
        # Resetting the sum when nothing runs keeps rounding errors from adding up.
        self.shares_used = self.shares_used - share if self.running else 0
