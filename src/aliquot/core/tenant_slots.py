"""Slots beyond a device's limit, so that a tenant's long calls cannot keep all other tenants waiting.

A `cpu` device may have extra slots (`DeviceSpec.extra_slots`). When the queueing policy waits, a tenant that has no
call in flight on such devices gets one of them. While all other slots are taken, a tenant may also hold several of
them, but fewer than half of the free ones, so the rest is left to others. Calls wait in order of arrival within their
tenant, and tenants with the fewest calls in flight go first. Everything here costs O(1).
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aliquot.core.device import Device
    from aliquot.core.records import Invocation

MAX_ATTEMPTS = 8  # tenants tried in one decision


class TenantSlots:
    """The slots that each tenant holds on devices with extra slots, and the queued calls of each tenant."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}  # by tenant
        self.queued: dict[str, OrderedDict[str, Invocation]] = {}  # by tenant, oldest first
        self.running = 0
        self.slots = 0  # of all devices that have extra ones
        self.extra = 0
        self._ranks: dict[int, dict[str, None]] = {}  # tenants with queued calls, by the number of slots they hold

    # --- changes ----------------------------------------------------------------------------------------

    def add_device(self, device: "Device") -> None:
        self.slots += device.slots
        self.extra += device.spec.extra_slots

    def remove_device(self, device: "Device") -> None:
        self.slots -= device.slots
        self.extra -= device.spec.extra_slots

    def enqueue(self, invocation: "Invocation") -> None:
        tenant = invocation.flow.key[0]
        own = self.queued.get(tenant)
        if own is None:
            own = self.queued[tenant] = OrderedDict()
            self._rank(tenant, self.held.get(tenant, 0))
        own[invocation.id] = invocation

    def remove(self, invocation: "Invocation") -> None:
        """Remove a call that has left its queue."""
        tenant = invocation.flow.key[0]
        own = self.queued[tenant]
        del own[invocation.id]
        if not own:
            self._unrank(tenant, self.held.get(tenant, 0))
            del self.queued[tenant]

    def take(self, tenant: str) -> None:
        """Count a slot that the tenant has got."""
        self.running += 1
        self._hold(tenant, 1)

    def free(self, tenant: str) -> None:
        self.running -= 1
        self._hold(tenant, -1)

    # --- decisions --------------------------------------------------------------------------------------

    def candidates(self) -> Iterator["Invocation"]:
        """Yield the oldest call of each tenant that may have a slot beyond the limit, best first, a few at most."""
        room = self.slots + self.extra - self.running
        if room <= 0 or not self._ranks:
            return
        full = self.running >= self.slots
        for held in sorted(self._ranks):  # there are fewer ranks than slots
            if held and not (full and 2 * held < room):
                return
            for tenant in list(islice(self._ranks[held], MAX_ATTEMPTS)):
                yield next(iter(self.queued[tenant].values()))

    # --- ranks ------------------------------------------------------------------------------------------

    def _hold(self, tenant: str, change: int) -> None:
        before = self.held.get(tenant, 0)
        held = before + change
        if held:
            self.held[tenant] = held
        else:
            del self.held[tenant]
        if tenant in self.queued:
            self._unrank(tenant, before)
            self._rank(tenant, held)

    def _rank(self, tenant: str, held: int) -> None:
        rank = self._ranks.get(held)
        if rank is None:
            rank = self._ranks[held] = {}
        rank[tenant] = None

    def _unrank(self, tenant: str, held: int) -> None:
        rank = self._ranks[held]
        del rank[tenant]
        if not rank:
            del self._ranks[held]
