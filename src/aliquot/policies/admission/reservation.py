"""Promise a call if the plan has a place for it that delays no promised call too long, and refuse it at once otherwise.

Kinds of devices are tried from the cheapest on, unless the call prefers an early end. In a lane the call joins a block
of its function, or gets one of its own in the order of due times.
"""

from collections.abc import Iterable, Mapping, Sequence

from aliquot.core.admission.interfaces import (
    Admission,
    Ask,
    Decision,
    GraphAsk,
    LaneView,
    PlannedPlace,
    PlanView,
    Probe,
    Promised,
    Refused,
)
from aliquot.core.admission.placement import Placements
from aliquot.core.admission.records import Offer, Prefer, Refusal, RefusalCause
from aliquot.core.interfaces import Params, RandomSource
from aliquot.core.view import View

TRIAL_FACTOR = 8.0  # of the bound on other kinds that a first run on one may take
MIN_RUNS = 8  # before a bound is trusted enough to refuse a call for ever


class ReservationParams(Params, frozen=True):
    margin_s: float = 0.002  # between the planned end of a call and its deadline
    target_sizes: bool = True  # reserve blocks for the batches that the load needs
    headroom: bool = True  # leave room for tighter deadlines


class Reservation(Admission):
    params_type = ReservationParams
    plans_graphs = True

    def __init__(self, params: ReservationParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self.params: ReservationParams = params
        self.margin_s = params.margin_s

    def arrived(self, ask: Ask, plan: PlanView, view: View) -> Decision:
        lanes = plan.lanes(ask.flow, ask.now)
        known = [lane for lane in lanes if plan.bound_s(ask.flow, lane.device) is not None]
        if not known:
            if lanes and plan.may_probe(ask.flow):
                return Probe("nothing is known about its run time")
            if not lanes:
                return Refused(Refusal(RefusalCause.NEVER), "it takes several devices, which are not planned")
            reason = "nothing is known about its run time, and a first call is under way"
            return Refused(Refusal(RefusalCause.UNKNOWN), reason)
        if len(known) < len(lanes) and (trial := self._trial(ask, plan, lanes, known)) is not None:
            return trial
        kinds = self._by_kind(ask, plan, known)
        due = ask.due
        found: list[PlannedPlace] = []
        for own in kinds:
            placement = self._place(ask, plan, own, due)
            if placement is not None:
                found.append(placement)
                if ask.prefer is Prefer.COST:
                    break
        if not found:
            return self._refusal(ask, plan, kinds, due)
        best = min(found, key=lambda placement: _rank(placement, ask))
        return Promised(best, f"ends {best.ends - ask.now:.6g} s after its arrival at the latest")

    def _trial(self, ask: Ask, plan: PlanView, lanes: Iterable[LaneView], known: Iterable[LaneView]) -> Probe | None:
        """Return a first run on a kind of device that is idle and of which nothing is known, while others are known."""
        if not plan.may_probe(ask.flow):
            return None
        kinds = [lane.device.spec.kind for lane in known]
        guess_s = TRIAL_FACTOR * max(plan.bound_s(ask.flow, lane.device) or 0 for lane in known)
        for lane in lanes:
            place = None if lane.device.spec.kind in kinds else plan.trial(ask, lane, guess_s)
            if place is not None:
                reason = f"nothing is known about its run time on kind {lane.device.spec.kind}"
                return Probe(reason, place)
        return None

    def candidates(self, ask: GraphAsk, placements: Placements) -> Sequence[Mapping[str, str] | None]:
        limit_s = None if ask.due is None else ask.due - ask.now
        found = placements.candidates(limit_s, ask.cost_limit, ask.prefer)
        return [*(placement.kinds for placement in found), None]

    def place(self, ask: Ask, plan: PlanView, lanes: Sequence[LaneView]) -> PlannedPlace | None:
        # A block of a stage is reserved for its first call. It grows and is filled while the stages before it run.
        return self._place(ask, plan, lanes, ask.due, sized=False)

    def _by_kind(self, ask: Ask, plan: PlanView, lanes: Iterable[LaneView]) -> list[list[LaneView]]:
        """Return the lanes by kind of device, the cheapest kind first."""
        kinds: dict[str, list[LaneView]] = {}
        for lane in lanes:
            kinds.setdefault(lane.device.spec.kind, []).append(lane)
        return sorted(kinds.values(), key=lambda own: (self._least_cost(ask, plan, own[0]), own[0].device.index))

    def _least_cost(self, ask: Ask, plan: PlanView, lane: LaneView) -> float:
        return plan.cost(ask.flow, lane.device, plan.bound_s(ask.flow, lane.device) or 0)

    def _place(
        self, ask: Ask, plan: PlanView, lanes: Sequence[LaneView], due: float | None, *, sized: bool = True
    ) -> PlannedPlace | None:
        """Return the best place on one kind of device: in a block with room, in a new one, or in a block that grows."""
        device = lanes[0].device
        seconds = plan.bound_s(ask.flow, device) or 0
        if plan.refused_for_share(ask, device, seconds) is not None:
            return None
        joined = [place for lane in lanes if (place := plan.join(ask, lane)) is not None]
        roomy = [place for place in joined if place.block is not None and place.size == place.block.size]
        if roomy:
            return min(roomy, key=lambda place: place.ends)
        if self.params.headroom and due is not None and plan.headroom_due(ask, device, seconds, due) > due:
            return None
        target = plan.target_size(ask, device) if sized and self.params.target_sizes else 1
        places = [place for lane in lanes if (place := plan.place(ask, lane, target)) is not None]
        if places:
            return min(places, key=lambda place: (place.ends, place.ready))
        return min(joined, key=lambda place: place.ends, default=None)

    def _refusal(self, ask: Ask, plan: PlanView, kinds: list[list[LaneView]], due: float | None) -> Decision:
        """Return why the call is refused, and what would be taken now."""
        bounds = {own[0].device.spec.kind: plan.bound_s(ask.flow, own[0].device) or 0 for own in kinds}
        needs_s = min(bounds.values())
        cost = min(self._least_cost(ask, plan, own[0]) for own in kinds)
        offers = [offer for own in kinds if (offer := self._offer(ask, plan, own)) is not None]
        offer = min(offers, key=lambda each: each.deadline_s or 0, default=None)
        limit_s = None if due is None else due - ask.now
        cause, retry_s = self._cause(ask, plan, kinds, needs_s, cost, limit_s)
        if cause is RefusalCause.SHARE or (cause is RefusalCause.DEADLINE and _is_within(offer, limit_s)):
            offer = None  # a later deadline alone would not do
        earliest_s = None if offer is None else offer.deadline_s
        if cause is RefusalCause.NEVER and self._few_runs(ask, plan, kinds):
            return Probe("too few runs are known to refuse it for ever")
        if retry_s is None and earliest_s is not None and limit_s is not None:
            retry_s = max(0.0, earliest_s - limit_s)
        reason = _reason(cause, ask, needs_s, earliest_s, cost)
        return Refused(Refusal(cause, needs_s, earliest_s, cost, offer, retry_s), reason)

    def _few_runs(self, ask: Ask, plan: PlanView, kinds: list[list[LaneView]]) -> bool:
        return plan.may_probe(ask.flow) and any(plan.runs(ask.flow, own[0].device) < MIN_RUNS for own in kinds)

    def _cause(
        self, ask: Ask, plan: PlanView, kinds: list[list[LaneView]], needs_s: float, cost: float, limit_s: float | None
    ) -> tuple[RefusalCause, float | None]:
        if ask.cost_limit is not None and cost > ask.cost_limit:
            return RefusalCause.COST, None
        if limit_s is not None and needs_s > limit_s:
            return RefusalCause.NEVER, None
        waits = [plan.refused_for_share(ask, own[0].device, needs_s) for own in kinds]
        if all(wait is not None for wait in waits):
            return RefusalCause.SHARE, min(wait for wait in waits if wait is not None)
        return RefusalCause.DEADLINE, None

    def _offer(self, ask: Ask, plan: PlanView, lanes: list[LaneView]) -> Offer | None:
        """Return the earliest deadline that one kind of device would take now, with its cost."""
        device = lanes[0].device
        seconds = plan.bound_s(ask.flow, device) or 0
        ends = []
        for lane in lanes:
            last = lane.blocks[-1].ends if lane.blocks else max(ask.now, lane.free_at)
            warm = ask.flow.resident_on(device) or bool(lane.blocks)
            ends.append(last + seconds + (0 if warm else plan.start_s(ask.flow, device)))
        due = min(ends)
        if self.params.headroom:
            due = plan.headroom_due(ask, device, seconds, due)
        if due == float("inf"):
            return None
        return Offer(due - ask.now + self.params.margin_s, plan.cost(ask.flow, device, seconds))


def _is_within(offer: Offer | None, limit_s: float | None) -> bool:
    """Return whether the offer is no later than the limit that was refused."""
    return offer is not None and offer.deadline_s is not None and limit_s is not None and offer.deadline_s <= limit_s


def _rank(placement: PlannedPlace, ask: Ask) -> float:
    if ask.prefer is Prefer.LATENCY:
        return placement.ends
    if ask.prefer is Prefer.BALANCED:
        return placement.cost * (placement.ends - ask.now)
    return placement.cost


def _reason(cause: RefusalCause, ask: Ask, needs_s: float, earliest_s: float | None, cost: float) -> str:
    if cause is RefusalCause.COST:
        return f"costs {cost:.6g} at least, and may cost {ask.cost_limit:g}"
    if cause is RefusalCause.SHARE:
        return f"tenant {ask.flow.key.tenant} has reserved more than its share while others are active"
    earliest = "" if earliest_s is None else f", earliest end {1000 * earliest_s:.4g} ms"
    limit = "" if ask.due is None else f", limit {1000 * (ask.due - ask.now):.4g} ms"
    return f"needs {1000 * needs_s:.4g} ms{earliest}{limit}"
