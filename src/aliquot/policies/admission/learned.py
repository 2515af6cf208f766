"""Promise calls as `reservation` does, on the kind of device whose cost was learned to be the lowest.

The bound of a single run says what a call costs at the most. What it costs in the end depends on the batches that form
and on starts, and a choice may take the room of calls that are refused later. So the policy learns, for each function,
how much time a call has and how busy each kind of device is, what the calls cost that were put on a kind. A broken
promise and a refusal add a penalty. The plan alone decides what is in time: costs only rank what it finds.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import log2
from typing import NamedTuple

from aliquot.core.admission.interfaces import Ask, Decision, GraphAsk, LaneView, PlanView, Promised, Refused
from aliquot.core.admission.placement import Placements
from aliquot.core.admission.records import Prefer, RefusalCause
from aliquot.core.interfaces import RandomSource
from aliquot.core.view import FlowView, InvocationView, View
from aliquot.policies.admission.reservation import Reservation, ReservationParams

MAX_SLACK, MAX_LOAD = 5, 4  # buckets
MAX_OPEN = 100_000  # choices whose calls have not ended
RECENT = 8  # choices that share the penalty of a refusal
MIN_SECONDS = 1e-9


class LearnedParams(ReservationParams, frozen=True):
    exploration: float = 0.02  # of the choices that are made at random
    rate: float = 0.05  # at which new costs replace old ones
    penalty: float = 2.0  # of a broken promise or a refusal, in costs of the call


class Situation(NamedTuple):
    """The circumstances that a choice depends on."""

    tenant: str
    function: str
    slack: int  # how often the shortest run fits into the limit, as a power of two
    loads: tuple[int, ...]  # of each kind of device, in parts of its lanes


class Choice(NamedTuple):
    """A kind of device that was chosen in a situation."""

    situation: Situation
    kind: str


class Learned(Reservation):
    params_type = LearnedParams

    def __init__(self, params: LearnedParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._exploration, self._rate, self._penalty = params.exploration, params.rate, params.penalty
        self._costs: dict[Choice, float] = {}
        self._means: dict[tuple[str, str, str], float] = {}  # of all calls of a function on a kind, for graphs
        self._open: dict[str, Choice] = {}  # by call
        self._recent: deque[Choice] = deque(maxlen=RECENT)
        self._situation: Situation | None = None  # of the call that is being decided about

    def arrived(self, ask: Ask, plan: PlanView, view: View) -> Decision:
        decision = super().arrived(ask, plan, view)
        situation, self._situation = self._situation, None
        if isinstance(decision, Promised) and situation is not None:
            choice = Choice(situation, decision.placement.lane.device.spec.kind)
            self._costs.setdefault(choice, decision.placement.cost)
            self._open[ask.call.id] = choice
            if len(self._open) > MAX_OPEN:
                del self._open[next(iter(self._open))]
            self._recent.append(choice)
        elif isinstance(decision, Refused) and decision.refusal.why is RefusalCause.DEADLINE:
            for choice in self._recent:
                self._learn(choice, self._costs[choice] * (1 + self._penalty / RECENT))
        return decision

    def _by_kind(self, ask: Ask, plan: PlanView, lanes: Iterable[LaneView]) -> list[list[LaneView]]:
        """Return the lanes by kind of device, the one with the lowest learned cost first."""
        kinds = super()._by_kind(ask, plan, lanes)
        if len(kinds) < 2 or ask.prefer is not Prefer.COST:  # noqa: PLR2004 - there is nothing to choose
            return kinds
        situation = self._situation = _situation(ask, plan, kinds)
        if self.generator.random() < self._exploration:
            first = kinds.pop(self.generator.randrange(len(kinds)))
            return [first, *kinds]

        def cost(own: Sequence[LaneView]) -> float:
            known = self._costs.get(Choice(situation, own[0].device.spec.kind))
            return self._least_cost(ask, plan, own[0]) if known is None else known

        return sorted(kinds, key=cost)

    def candidates(self, ask: GraphAsk, placements: Placements) -> Sequence[Mapping[str, str] | None]:
        found = super().candidates(ask, placements)
        if ask.prefer is not Prefer.COST:
            return found
        known = [(cost, kinds) for kinds in found if kinds is not None and (cost := self._sum(ask, kinds)) is not None]
        if len(known) < len(found) - 1:  # the last one is for the plan to choose
            return found
        return [*(kinds for _, kinds in sorted(known, key=lambda each: each[0])), None]

    def _sum(self, ask: GraphAsk, kinds: Mapping[str, str]) -> float | None:
        """Return what the stages of a graph cost on these kinds, or None if one of them was not tried."""
        keys = [(*ask.flows[stage].key, kind) for stage, kind in kinds.items()]
        costs = [self._means.get(key) for key in keys]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def settled(self, call: InvocationView, flow: FlowView, kind: str, cost: float, *, late: bool) -> None:
        cost = cost * (1 + self._penalty) if late else cost
        key = (flow.key.tenant, flow.key.function, kind)
        before = self._means.get(key, cost)
        self._means[key] = before + self._rate * (cost - before)
        choice = self._open.pop(call.id, None)
        if choice is not None:
            self._learn(choice, cost)

    def _learn(self, choice: Choice, cost: float) -> None:
        before = self._costs.get(choice, cost)
        self._costs[choice] = before + self._rate * (cost - before)

    def withdrawn(self, call: InvocationView) -> None:
        self._open.pop(call.id, None)

    def closed(self, flow: FlowView) -> None:
        tenant, function = flow.key
        self._costs = {
            choice: cost
            for choice, cost in self._costs.items()
            if (choice.situation.tenant, choice.situation.function) != (tenant, function)
        }
        self._means = {key: cost for key, cost in self._means.items() if key[:2] != (tenant, function)}
        self._recent.clear()


def _situation(ask: Ask, plan: PlanView, kinds: Sequence[Sequence[LaneView]]) -> Situation:
    bounds = [plan.bound_s(ask.flow, own[0].device) or 0.0 for own in kinds]
    slack = MAX_SLACK
    if ask.due is not None:
        fits = max(1.0, (ask.due - ask.now) / max(MIN_SECONDS, min(bounds)))
        slack = min(MAX_SLACK, int(log2(fits)))
    loads = tuple(sorted((own[0].device.spec.kind, _load(own, ask.now)) for own in kinds))
    return Situation(*ask.flow.key, slack, tuple(load for _, load in loads))


def _load(lanes: Sequence[LaneView], now: float) -> int:
    """Return how many of the lanes have something to do, in quarters."""
    busy = sum(bool(lane.blocks) or lane.free_at > now for lane in lanes)
    return -(-MAX_LOAD * busy // len(lanes))
