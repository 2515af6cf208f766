"""The expected work of flows with objectives, by kind of device: target sizes of batches, headroom, and tenants' parts.

Three rules decide about calls that would fit (decision 55). A block is reserved for as many calls as the load needs. A
loose deadline leaves room for tighter ones that are expected. No tenant gets more than its share while others are
active.
"""

from collections.abc import Callable, Iterable, Mapping
from math import exp, expm1, inf
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aliquot.core.flow import Flow

Bound: TypeAlias = "Callable[[Flow, int], float | None]"  # of the runs of a flow with so many calls
RATE_S = 2.0  # over which rates are averaged
MIN_PERIOD_S = 0.25  # of calls that a rate comes from
MAX_LOAD = 0.85  # of the lanes, up to which batches stay small
HEADROOM_LOAD = 0.7  # of the lanes, above which room is left for tighter deadlines
PLAIN_PART = 0.1  # of the lanes, for plain calls
TIGHTER = 0.99  # of another limit, below which a limit counts as tighter
ACTIVE_S = 10.0  # since its last call, for which a tenant counts as active
RENEW_S = 0.1  # between two computations of sizes and active tenants
MIN_STEP_S = 1e-9
MAX_AHEAD_S = 1.0  # that a tenant alone may be ahead of its share


class FlowDemand:
    """The rate and the limit of the calls of one flow that have an objective."""

    __slots__ = ("_at", "_count", "_first", "flow", "limit_s", "size", "whole_s", "width")

    def __init__(self, flow: "Flow", width: int) -> None:
        self.flow = flow
        self.width = width  # lanes that each of its runs takes
        self.limit_s = inf  # of the last call
        self.whole_s = inf  # of the execution that it is a stage of, or its own
        self.size = 1  # target size of its blocks
        self._count = 0.0
        self._first: float | None = None
        self._at: float = 0

    def arrived(self, limit_s: float, whole_s: float, now: float) -> None:
        if self._first is None:
            self._first = now
        self._count = self._count * exp((self._at - now) / RATE_S) + 1
        self._at = now
        self.limit_s, self.whole_s = limit_s, whole_s

    def known_for(self, now: float) -> float:
        """Return the seconds since its first call."""
        return 0.0 if self._first is None else now - self._first

    def rate(self, now: float) -> float:
        """Return the calls per second, of late."""
        if self._first is None:
            return 0.0
        period_s = RATE_S * -expm1(-max(MIN_PERIOD_S, now - self._first) / RATE_S)
        return self._count * exp((self._at - now) / RATE_S) / period_s


class KindDemand:
    """The flows with objectives on one kind of device, and what their tenants have reserved."""

    def __init__(self) -> None:
        self.lanes = 0  # of all devices of the kind
        self.flows: dict[int, FlowDemand] = {}
        self.load = 0.0  # in lanes
        self.tags: dict[str, float] = {}  # until when each tenant has used its share
        self.blocks = 0  # planned and not started
        self.unbounded = 0  # lanes with plain runs of which nobody knows when they end
        self.plain_at: float = 0  # when a plain call may have a lane before a block again
        self._renewed: float | None = None

    def arrived(self, flow: "Flow", width: int, limit_s: float, whole_s: float, now: float) -> FlowDemand:
        demand = self.flows.get(flow.index)
        if demand is None or demand.width != width:
            demand = self.flows[flow.index] = FlowDemand(flow, width)
        demand.arrived(limit_s, whole_s, now)
        return demand

    def renew(self, bound: Bound, now: float) -> None:
        """Compute the target sizes again, if they are old.

        Sizes grow from 1 where a larger batch saves most lane time for each second that it takes longer, until the
        expected work fits. A batch never takes more than half of its limit, so that a call that just missed one is in
        time with the next.
        """
        if self._renewed is not None and now < self._renewed + RENEW_S:
            return
        self._renewed = now
        for index in [index for index, each in self.flows.items() if each.flow.closed or each.rate(now) < 1e-6]:  # noqa: PLR2004
            del self.flows[index]
        tables = {index: _times_by_size(each, bound) for index, each in self.flows.items()}
        rates = {index: each.rate(now) * each.width for index, each in self.flows.items()}
        sizes = dict.fromkeys(self.flows, 1)
        work = {index: rates[index] * tables[index].get(1, 0.0) for index in self.flows}
        while sum(work.values()) > MAX_LOAD * self.lanes:
            best = _best_growth(tables, sizes, rates)
            if best is None:
                break
            index, size = best
            sizes[index] = size
            work[index] = rates[index] * tables[index][size] / size
        for index, each in self.flows.items():
            each.size = sizes[index]
        self.load = sum(work.values())

    def tighter_load(self, limit_s: float, shares: Mapping[str, float], now: float, bound: Bound) -> float:
        """Return the expected work of flows with tighter limits, in lanes. A tenant's counts at most at its share."""
        by_tenant: dict[str, float] = {}
        for each in self.flows.values():
            if each.whole_s < TIGHTER * limit_s:
                work = each.rate(now) * each.width * (bound(each.flow, each.size) or 0) / each.size
                tenant = each.flow.key.tenant
                by_tenant[tenant] = by_tenant.get(tenant, 0) + work
        return sum(min(work, shares.get(tenant, 1) * self.lanes) for tenant, work in by_tenant.items())

    def ran_plain(self, lane_s: float, now: float) -> None:
        """Count a plain run, so that plain calls have their part of the lanes before blocks, and no more."""
        self.plain_at = now + lane_s / (PLAIN_PART * max(1, self.lanes))

    # --- shares of tenants ------------------------------------------------------------------------------

    def tag(self, tenant: str, now: float) -> float:
        """Return until when the tenant has used its share."""
        return max(now, self.tags.get(tenant, 0))

    def reserve(self, tenant: str, seconds: float, share: float, now: float) -> None:
        """Count lane time to a tenant, or give it back if it is negative."""
        rate = share * self.lanes
        if rate <= 0:
            return
        tag = self.tags.get(tenant, 0)
        tag = (max(now, tag) if seconds > 0 else tag) + seconds / rate
        if share >= 1:
            tag = min(tag, now + MAX_AHEAD_S)
        self.tags[tenant] = tag
        if len(self.tags) > 64 and seconds > 0:  # noqa: PLR2004 - rarely, to forget tenants that are gone
            self.tags = {name: at for name, at in self.tags.items() if at > now}


def _times_by_size(demand: FlowDemand, bound: Bound) -> dict[int, float]:
    """Return the run times of the batches that a flow may have: of one call, and those of at most half of its limit."""
    flow = demand.flow
    limit = flow.spec.batch if flow.batches is None else flow.batches.limit
    times: dict[int, float] = {}
    for size in range(1, limit + 1):
        run_s = bound(flow, size)
        if run_s is None or (size > 1 and 2 * run_s > demand.limit_s):
            break
        times[size] = run_s
    return times


def _best_growth(
    tables: Mapping[int, Mapping[int, float]], sizes: Mapping[int, int], rates: Mapping[int, float]
) -> tuple[int, int] | None:
    """Return the flow and the larger size that save most lane time for each second that a batch takes longer.

    The next size may save nothing where a later one does, so all are looked at.
    """
    best, most = None, 0.0
    for index, times in tables.items():
        size = sizes[index]
        for larger, run_s in times.items():
            if larger > size:
                saved = rates[index] * (times[size] / size - run_s / larger)
                gain = saved / max(run_s - times[size], MIN_STEP_S)
                if gain > most:
                    best, most = (index, larger), gain
    return best


def active_tenants(flows: "Mapping[str, Mapping[int, Flow]]", now: float) -> Iterable[str]:
    """Yield the tenants that wait, run, are promised, or had a call in the last seconds."""
    for tenant, own in flows.items():
        for flow in own.values():
            if flow.queued or flow.in_flight or flow.promised or (flow.arrivals and now - flow.last_arrival < ACTIVE_S):
                yield tenant
                break
