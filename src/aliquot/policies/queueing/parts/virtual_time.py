"""Fair queueing on two levels: between tenants, and between a tenant's own flows.

Each level is a `FairClock`. Its members have start tags, which grow by the charge divided by the weight. Its virtual
time is the smallest start tag of the waiting members. A member that had nothing waiting returns at the virtual time, so
idle time earns no credit. A member is *eligible* while it is at most a window ahead of the virtual time. The policy may
choose freely among the eligible members, for example for locality or short runs. The window bounds the cost for others.

The members of the upper clock are tenants, each with a clock of its own flows.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Generic, NamedTuple, TypeVar

from aliquot.core.view import FlowView
from aliquot.policies.queueing.parts.flow_heap import Indexed

M = TypeVar("M", bound=Indexed)


class Urgency(NamedTuple):
    """The order among eligible members. The smallest is served first, and the number breaks ties."""

    due: float
    number: int
    patience_s: float = -inf  # from becoming the head to being due; minus infinity for a call with a deadline


_SLACK = 64  # stale heap entries tolerated on top of three each


class FairWindow:
    """The distance that a member may run ahead of the virtual time, shared by several clocks.

    Charges beyond the window add up to at most `max_lead`, unless that is less than the window. A member that is more
    than `throttle` windows ahead waits, even if no other member can use a free slot.
    """

    __slots__ = ("claims", "max_distance", "max_lead", "max_start", "size", "throttle")

    def __init__(self, size: float, max_lead: float = 0, throttle: float | None = None) -> None:
        self.throttle = throttle
        self.claims: dict[int, None] = {}  # eligible flows that wait for more to become free, so none may pass them
        self.resize(size, max_lead)

    def resize(self, size: float, max_lead: float) -> None:
        self.size = size
        self.max_lead = max_lead
        if self.throttle is None:
            self.max_distance = inf  # beyond it a member is throttled
            self.max_start = max(size, max_lead)  # up to it charges add up
        else:
            self.max_distance = self.throttle * size
            self.max_start = max(size, self.max_distance)


class FairClock(Generic[M]):
    """A fair clock, kept in three heaps whose entries are checked only when they reach the front.

    An outdated entry is dropped or corrected then. So adding, removing and charging a member is cheap.
    """

    def __init__(self, window: FairWindow) -> None:
        self.now = 0.0
        self.window = window
        self.starts: dict[int, float] = {}  # start tags; after the tag of a waiting member changes, call `set_waiting`
        self._urgency: dict[int, Urgency] = {}  # by waiting member
        self._passed_over: set[int] = set()  # waiting members that are skipped; the set is never iterated
        self._by_start: list[tuple[float, int, M]] = []  # every waiting member
        self._listed: dict[int, float] = {}  # the start tags with which members are in it; other entries are outdated
        self._eligible: list[tuple[Urgency, int, M]] = []  # members that are neither ahead nor passed over
        self._ahead: list[tuple[float, int, M]] = []
        self._checked = 0.0  # virtual time when the invariants were last checked

    def set_waiting(self, member: M, urgency: Urgency) -> None:
        """Record that the member has something waiting, with this urgency."""
        index = member.index
        if index not in self._urgency:
            self._advance()
            self.starts[index] = max(self.starts.get(index, self.now), self.now)
        self._urgency[index] = urgency
        self._passed_over.discard(index)
        start = self.starts[index]
        if self._listed.get(index) != start:
            self._listed[index] = start
            heappush(self._by_start, (start, index, member))
        if start - self.now <= self.window.size:
            heappush(self._eligible, (urgency, index, member))
        else:
            heappush(self._ahead, (start, index, member))
        if max(len(self._by_start), len(self._eligible) + len(self._ahead)) > _SLACK + 4 * len(self._urgency):
            self._drop_stale()

    def set_idle(self, member: M) -> None:
        """Record that the member has nothing waiting."""
        self._urgency.pop(member.index, None)
        self._passed_over.discard(member.index)

    def forget(self, member: M) -> None:
        self.set_idle(member)
        self.starts.pop(member.index, None)

    @property
    def waiting(self) -> int:
        return len(self._urgency)

    def first(self) -> M | None:
        """Return the most urgent of the eligible members, or else the one that is least far ahead.

        A member beyond the window takes only what no eligible member can use, now or by waiting for more of it.
        """
        self._advance()
        heap = self._eligible
        while heap:
            urgency, index, member = heap[0]
            if self._urgency.get(index) == urgency and index not in self._passed_over:
                start = self.starts[index]
                if start - self.now <= self.window.size:
                    return member
                heappush(self._ahead, (start, index, member))  # the window has shrunk since
            heappop(heap)
        heap_ahead = self._ahead
        while heap_ahead and not self.window.claims:
            start, index, member = heap_ahead[0]
            if index in self._urgency and index not in self._passed_over and self.starts[index] == start:
                return member if start - self.now <= self.window.max_distance else None
            heappop(heap_ahead)
        return None

    def is_ahead(self, member: M) -> bool:
        """Return whether the member is beyond the window."""
        return self.starts.get(member.index, self.now) - self.now > self.window.size

    def charge(self, member: M, amount: float) -> None:
        """Advance the start tag by the charge of a dispatch.

        A dispatch beyond the window used what the others could not. Such charges put members that share it in order,
        but they add up to a bounded lead, so that nobody pays for long.
        """
        start, limit = self.starts.get(member.index, self.now), self.now + self.window.max_start
        self.starts[member.index] = min(start, limit) + amount

    def correct(self, member: M, amount: float) -> None:
        """Correct an earlier charge."""
        self.starts[member.index] = self.starts.get(member.index, self.now) + amount

    def is_only_choice(self, member: M) -> bool:
        """Return whether this member, if it waited, would be the only choice, so that `set_waiting` can be skipped.

        A member beyond the window never is, because it may take only what the others cannot use.
        """
        if len(self._urgency) > len(self._passed_over):
            return False
        self._advance()
        start = max(self.starts.get(member.index, self.now), self.now)
        if not self._urgency:
            self.now = start
        elif start - self.now > self.window.size:
            return False
        self.starts[member.index] = start
        return True

    def first_urgency(self) -> Urgency | None:
        """Return the urgency of the first member. Members beyond the window come after all others."""
        first = self.first()
        if first is None:
            return None
        return Urgency(inf, first.index) if self.is_ahead(first) else self._urgency[first.index]

    def pass_over(self, member: M) -> None:
        """Skip the member for now. `set_waiting` makes it eligible again."""
        self._passed_over.add(member.index)

    def violations(self) -> Iterator[str]:
        if self.now < self._checked:
            yield f"virtual time went back from {self._checked} to {self.now}"
        self._checked = self.now
        in_order = {index: True for _, index, _ in self._by_start}
        in_reach = {index: True for heap in (self._eligible, self._ahead) for _, index, _ in heap}
        for index in self._urgency:
            if index not in in_order:
                yield f"{index} waits, but virtual time does not wait for it"
            if index not in in_reach and index not in self._passed_over:
                yield f"{index} waits, but could never be chosen"

    def _advance(self) -> None:
        """Advance the virtual time. It never goes back, not even when a charge is corrected downwards."""
        heap = self._by_start
        if heap:
            self._advance_to_first(heap)
        heap = self._ahead
        if not heap:
            return
        starts, urgency = self.starts, self._urgency
        while heap:
            start, index, member = heap[0]
            if index in urgency and starts[index] == start:
                if start - self.now > self.window.size:
                    return
                heappush(self._eligible, (urgency[index], index, member))
            heappop(heap)

    def _advance_to_first(self, heap: list[tuple[float, int, M]]) -> None:
        """Advance to the smallest start tag of the waiting members."""
        starts, listed, urgency = self.starts, self._listed, self._urgency
        while heap:
            start, index, member = heap[0]
            if index in urgency and starts[index] == start:
                self.now = max(self.now, start)
                return
            if listed.get(index) != start:
                heappop(heap)
            elif index in urgency:
                listed[index] = starts[index]
                heapreplace(heap, (starts[index], index, member))
            else:
                del listed[index]
                heappop(heap)

    def _drop_stale(self) -> None:
        """Rebuild the heaps with one entry for each waiting member."""
        members = {index: member for _, index, member in self._by_start if index in self._urgency}
        self._by_start = [(self.starts[index], index, member) for index, member in members.items()]
        heapify(self._by_start)
        self._listed = {index: self.starts[index] for index in members}
        self._ahead = []
        self._eligible = [(self._urgency[index], index, member) for index, member in members.items()]
        heapify(self._eligible)


class TenantClock:
    """A tenant as a member of the upper clock, with the clock of its own flows."""

    def __init__(self, index: int, window: FairWindow) -> None:
        self.index = index
        self.clock: FairClock[FlowView] = FairClock(window)
        self.flows = 0
        self.served = -inf  # time of its last dispatch


class TwoLevelClock:
    """A clock of tenants by the operator's weights, with a clock of each tenant's flows by their own weights."""

    def __init__(self, window: FairWindow) -> None:
        self.window = window
        self.tenants: dict[str, TenantClock] = {}
        self.clock: FairClock[TenantClock] = FairClock(window)
        self._tenants_seen = 0
        self._changed: dict[int, TenantClock] = {}  # their urgency is updated before the next choice

    def open(self, flow: FlowView) -> None:
        tenant = self.tenants.get(flow.key.tenant)
        if tenant is None:
            tenant = self.tenants[flow.key.tenant] = TenantClock(self._tenants_seen, self.window)
            self._tenants_seen += 1
            if len(self.tenants) == 2:  # noqa: PLR2004 - service of a tenant that was alone does not count
                self.clock.now = max(self.clock.now, *self.clock.starts.values(), 0)
        tenant.flows += 1

    def close(self, flow: FlowView) -> None:
        tenant = self.tenants[flow.key.tenant]
        self.window.claims.pop(flow.index, None)
        tenant.clock.forget(flow)
        tenant.flows -= 1
        if tenant.flows:
            self._changed[tenant.index] = tenant
        else:
            self._changed.pop(tenant.index, None)
            self.clock.forget(tenant)
            del self.tenants[flow.key.tenant]

    def charge(self, flow: FlowView, amount: float, *, now: float) -> None:
        """Charge a dispatch to the flow and its tenant. If something of the flow waits, call `set_waiting` then."""
        tenant = self._change(flow)
        tenant.served = now
        tenant.clock.charge(flow, amount / flow.spec.weight)
        self.clock.charge(tenant, amount / flow.tenant_weight)

    def correct(self, flow: FlowView, amount: float) -> None:
        """Correct an earlier charge of the flow and its tenant. If something waits, call `set_waiting` then."""
        tenant = self._change(flow)
        tenant.clock.correct(flow, amount / flow.spec.weight)
        self.clock.correct(tenant, amount / flow.tenant_weight)

    def set_waiting(self, flow: FlowView, urgency: Urgency) -> None:
        self.window.claims.pop(flow.index, None)
        self._change(flow).clock.set_waiting(flow, urgency)

    def set_idle(self, flow: FlowView) -> None:
        self.window.claims.pop(flow.index, None)
        self._change(flow).clock.set_idle(flow)

    def start(self, flow: FlowView) -> float:
        """Return the flow's start tag among its tenant's flows."""
        clock = self.tenants[flow.key.tenant].clock
        return clock.starts.get(flow.index, clock.now)

    def first(self) -> FlowView | None:
        """Return the most urgent eligible flow of the most urgent eligible tenant."""
        if len(self.tenants) == 1:  # there is nothing to compete with
            return next(iter(self.tenants.values())).clock.first()
        for changed in self._changed.values():
            self._update_urgency(changed)
        self._changed.clear()
        tenant = self.clock.first()
        return tenant.clock.first() if tenant else None

    def is_only_choice(self, flow: FlowView) -> bool:
        """Return whether this flow, if it waited, would be the only choice. It is False with several tenants."""
        return len(self.tenants) == 1 and self.tenants[flow.key.tenant].clock.is_only_choice(flow)

    def pass_over(self, flow: FlowView, *, claims: bool) -> None:
        """Skip the flow for now. `set_waiting` makes it eligible again.

        A flow that `claims` fits nowhere yet. If it is within the window, those beyond it may not take what becomes
        free, or it might never fit.
        """
        tenant = self._change(flow)
        if claims and not tenant.clock.is_ahead(flow) and not (len(self.tenants) > 1 and self.clock.is_ahead(tenant)):
            self.window.claims[flow.index] = None
        tenant.clock.pass_over(flow)

    def violations(self) -> list[str]:
        own = (violation for tenant in self.tenants.values() for violation in tenant.clock.violations())
        return [*self.clock.violations(), *own]

    def _change(self, flow: FlowView) -> TenantClock:
        tenant = self.tenants[flow.key.tenant]
        self._changed[tenant.index] = tenant
        return tenant

    def _update_urgency(self, tenant: TenantClock) -> None:
        """Give the tenant the urgency of its most urgent eligible flow, counted from its own last dispatch at least.

        Otherwise a tenant with many flows would always have one that has waited longer than anything of the others.
        """
        urgency = tenant.clock.first_urgency()
        if urgency is not None:
            due = max(urgency.due, tenant.served + urgency.patience_s)
            self.clock.set_waiting(tenant, Urgency(due, urgency.number))
        elif tenant.clock.waiting:
            self.clock.pass_over(tenant)
        else:
            self.clock.set_idle(tenant)
