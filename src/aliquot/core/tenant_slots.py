"""Slots beyond a device's limit, so that a tenant's long calls cannot keep all other tenants waiting.

A `cpu` device may have extra slots (`DeviceSpec.extra_slots`). When the queueing policy waits, a tenant that has no
call in flight on such devices gets one of them. While all other slots are taken, a tenant may also hold several of
them, but fewer than half of the free ones, so the rest is left to others. Calls wait in order of arrival within their
tenant, and tenants with the fewest calls in flight go first. Everything here costs O(1).

Most calls find a slot, and then nobody asks for candidates. The ranks of the tenants whose numbers have changed are
therefore brought up to date only when somebody does.
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
        # Tenants with queued calls by the number of slots they hold, and that number for each of them. Both are
        # outdated for the changed tenants, which are in the order of their last change.
        self._ranks: dict[int, dict[str, None]] = {}
        self._rank_of: dict[str, int] = {}
        self._changed: dict[str, None] = {}

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
            self._change(tenant)
        own[invocation.id] = invocation

    def remove(self, invocation: "Invocation") -> None:
        """Remove a call that has left its queue."""
        tenant = invocation.flow.key[0]
        own = self.queued[tenant]
        del own[invocation.id]
        if not own:
            del self.queued[tenant]
            if tenant in self._rank_of:
                self._change(tenant)
            else:
                self._changed.pop(tenant, None)

    def take(self, tenant: str) -> None:
        """Count a slot that the tenant has got."""
        self.running += 1
        held = self.held
        held[tenant] = held.get(tenant, 0) + 1
        if tenant in self.queued:
            self._change(tenant)

    def free(self, tenant: str) -> None:
        self.running -= 1
        left = self.held[tenant] - 1
        if left:
            self.held[tenant] = left
        else:
            del self.held[tenant]
        if tenant in self.queued:
            self._change(tenant)

    def _change(self, tenant: str) -> None:
        changed = self._changed
        if changed:
            changed.pop(tenant, None)
        changed[tenant] = None

    # --- decisions --------------------------------------------------------------------------------------

    def candidates(self) -> Iterator["Invocation"]:
        """Yield the oldest call of each tenant that may have a slot beyond the limit, best first, a few at most."""
        room = self.slots + self.extra - self.running
        if room <= 0 or not self.queued:
            return
        self._update_ranks()
        full = self.running >= self.slots
        for held in sorted(self._ranks):  # there are fewer ranks than slots
            if held and not (full and 2 * held < room):
                return
            for tenant in list(islice(self._ranks[held], MAX_ATTEMPTS)):
                yield next(iter(self.queued[tenant].values()))

    def _update_ranks(self) -> None:
        """Put each changed tenant behind the others that hold as many slots, if it has queued calls."""
        for tenant in self._changed:
            before = self._rank_of.pop(tenant, None)
            if before is not None:
                rank = self._ranks[before]
                del rank[tenant]
                if not rank:
                    del self._ranks[before]
            if tenant in self.queued:
                held = self._rank_of[tenant] = self.held.get(tenant, 0)
                self._ranks.setdefault(held, {})[tenant] = None
        self._changed.clear()
