"""The host's memory: what sandboxes claim of it, which starts wait for it, and which idle sandboxes are stopped first.

The limits of sandboxes that have an invocation never add up to more than the bound. A start that would exceed it waits.
Idle sandboxes are stopped for a start: those of its own tenant first, and then all others in eviction order. While
several tenants have functions, one tenant's running sandboxes claim at most three quarters, so that it cannot take all.
"""

from collections.abc import Mapping
from typing import Protocol

from aliquot.core.errors import EventError
from aliquot.core.interfaces import Eviction
from aliquot.core.model import FlowKey, FunctionSpec
from aliquot.core.records import Sandbox, StopCandidate

MAX_TENANT_PARTS, PARTS = 3, 4  # one tenant may claim 3/4 while there are others


class ClaimingFlow(Protocol):
    """A flow with the host memory that its next sandbox would claim."""

    @property
    def key(self) -> FlowKey: ...
    @property
    def spec(self) -> FunctionSpec: ...


class HostMemory:
    """Counts the claims of all sandboxes of a node, and lists the idle ones that may be stopped."""

    def __init__(self, tenants: Mapping[str, object]) -> None:
        self.limit: int | None = None  # None means unbounded
        self.claimed = 0  # by all sandboxes
        self.busy = 0  # by sandboxes that have an invocation
        self.busy_by_tenant: dict[str, int] = {}
        self.kept: dict[int, Sandbox] = {}  # sandboxes kept for sessions, least recently used first
        self.kept_bytes = 0  # claimed by these
        self.unused: dict[int, Sandbox] = {}  # started ahead and never used, which are stopped first
        self._tenants = tenants  # those that have functions
        self._refused = False  # a start waits
        self._order: Eviction[StopCandidate] | None = None  # idle sandboxes of all devices that may be stopped
        self._idle: dict[str, dict[int, Sandbox]] = {}  # the same by tenant, least recently used first

    def bound(self, limit: int, order: Eviction[StopCandidate]) -> None:
        """Limit the claims. `order` decides which idle sandboxes of other tenants are stopped first."""
        self.check(limit)
        self.limit = limit
        self._order = order

    @staticmethod
    def check(limit: int) -> None:
        if limit < 0:
            raise EventError(f"a host cannot have {limit} bytes of memory")

    def allows(self, flow: ClaimingFlow) -> bool:
        """Return whether a sandbox of the flow could start now, if idle ones were stopped. A refusal is remembered."""
        if self.limit is None:
            return True
        needed, tenant = flow.spec.host_bytes, flow.key.tenant
        held = self.busy_by_tenant.get(tenant, 0)
        fits = self.busy + needed <= self.limit
        if fits and held and len(self._tenants) > 1:
            fits = held + needed <= self.limit * MAX_TENANT_PARTS // PARTS
        self._refused = self._refused or not fits
        return fits

    def occupy(self, sandbox: Sandbox) -> None:
        """Count a sandbox that has just got an invocation."""
        size = sandbox.host_bytes
        if size:
            tenant = sandbox.flow.key.tenant
            self.busy += size
            self.busy_by_tenant[tenant] = self.busy_by_tenant.get(tenant, 0) + size

    def vacate(self, sandbox: Sandbox) -> bool:
        """Count a sandbox that has no invocation any more. Return whether a start has waited for memory."""
        size, tenant = sandbox.host_bytes, sandbox.flow.key.tenant
        if not size:
            return False
        self.busy -= size
        self.busy_by_tenant[tenant] -= size
        if not self.busy_by_tenant[tenant]:
            del self.busy_by_tenant[tenant]
        refused, self._refused = self._refused, False
        return refused

    # --- idle sandboxes ---------------------------------------------------------------------------------

    def add_idle(self, sandbox: Sandbox, *, now: float) -> None:
        """List an idle sandbox among those that may be stopped."""
        if self._order is not None:
            self._order.add(sandbox.host_candidate, now=now)
            self._idle.setdefault(sandbox.flow.key.tenant, {})[sandbox.id] = sandbox

    def remove_idle(self, sandbox: Sandbox) -> None:
        """Take a sandbox out of the list, if it is there."""
        if self._order is not None:
            self._order.remove(sandbox.host_candidate)
            own = self._idle.get(sandbox.flow.key.tenant)
            if own is not None and own.pop(sandbox.id, None) is not None and not own:
                del self._idle[sandbox.flow.key.tenant]

    def forget(self, sandbox: Sandbox) -> None:
        """Forget a sandbox that is gone."""
        self.remove_idle(sandbox)
        if self._order is not None:
            self._order.forget(sandbox.host_candidate)

    def lacks(self, needed: int) -> bool:
        """Return whether so many bytes are not free."""
        return self.limit is not None and self.claimed + needed > self.limit

    def victim(self, tenant: str, *, now: float) -> Sandbox | None:
        """Return the idle sandbox to stop for a start of the tenant, or None if there is none."""
        own = self._idle.get(tenant)
        if own:
            return next(iter(own.values()))
        first = self._order.victim(now=now) if self._order is not None else None
        return None if first is None else first.sandbox

    def idle(self) -> list[Sandbox]:
        """Return all listed sandboxes, for the invariants check."""
        return [sandbox for own in self._idle.values() for sandbox in own.values()]
