"""The admission of the thesis: any place that meets both limits, chosen at random from a sample.

A call goes to an instance of its function that is there already, if it ends in time behind the calls that wait for it.
Otherwise it joins a batch that stays in time. Otherwise it gets a new instance: of the efficient kinds of devices that
meet both limits on idle devices a few are drawn at random, and tried in that order. On each kind the device with the
most free memory comes first. Whole graphs are placed the same way, with the efficient kinds for all their stages.

The text of the thesis unites the sets that meet either limit, which cannot meet both, so this takes their intersection.
There is no headroom, no target size and no share of tenants.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

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
from aliquot.core.admission.records import Refusal, RefusalCause
from aliquot.core.interfaces import Params, RandomSource
from aliquot.core.view import View

T = TypeVar("T")
MAX_PLACEMENTS = 4096  # efficient placements of a graph that are drawn from


class ParetoSampledParams(Params, frozen=True):
    samples: int = 8  # placements that are tried for a new instance


class ParetoSampled(Admission):
    params_type = ParetoSampledParams
    plans_graphs = True

    def __init__(self, params: ParetoSampledParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._samples = params.samples

    def arrived(self, ask: Ask, plan: PlanView, view: View) -> Decision:
        lanes = [lane for lane in plan.lanes(ask.flow, ask.now) if plan.bound_s(ask.flow, lane.device) is not None]
        if not lanes:
            if plan.may_probe(ask.flow):
                return Probe("nothing is known about its run time")
            return Refused(Refusal(RefusalCause.UNKNOWN), "nothing is known about its run time")
        found = _in_instance(ask, plan, lanes)
        if found is not None:
            return Promised(found, "an instance of it is there")
        by_kind: dict[str, list[LaneView]] = {}
        for lane in lanes:
            by_kind.setdefault(lane.device.spec.kind, []).append(lane)
        for kind in self._sampled(_efficient(ask, plan, by_kind)):
            found = _in_new_instance(ask, plan, by_kind[kind])
            if found is not None:
                return Promised(found, "a sampled kind of device meets both limits")
        return Refused(Refusal(RefusalCause.DEADLINE), "no sampled kind of device meets both limits now")

    def candidates(self, ask: GraphAsk, placements: Placements) -> Sequence[Mapping[str, str] | None]:
        limit_s = None if ask.due is None else ask.due - ask.now
        found = placements.candidates(limit_s, ask.cost_limit, limit=MAX_PLACEMENTS)
        return [placement.kinds for placement in self._sampled(found)]

    def place(self, ask: Ask, plan: PlanView, lanes: Sequence[LaneView]) -> PlannedPlace | None:
        return _in_instance(ask, plan, lanes) or _in_new_instance(ask, plan, lanes)

    def _sampled(self, values: Sequence[T]) -> list[T]:
        """Draw a few of the values, in random order."""
        left = list(values)
        drawn: list[T] = []
        while left and len(drawn) < self._samples:
            drawn.append(left.pop(self.generator.randrange(len(left))))
        return drawn


def _in_instance(ask: Ask, plan: PlanView, lanes: Sequence[LaneView]) -> PlannedPlace | None:
    """Return a place behind the calls of an instance that is there, or in one of its batches."""
    placed = [lane for lane in lanes if lane.blocks or ask.flow.resident_on(lane.device)]
    for find in (plan.place, plan.join):
        for lane in placed:
            found = find(ask, lane)
            if found is not None:
                return found
    return None


def _in_new_instance(ask: Ask, plan: PlanView, lanes: Sequence[LaneView]) -> PlannedPlace | None:
    """Return a place in a new instance, on the device with the most free memory that is in time."""
    for lane in sorted(lanes, key=lambda lane: -lane.device.free_bytes):
        found = plan.place(ask, lane)
        if found is not None:
            return found
    return None


def _efficient(ask: Ask, plan: PlanView, by_kind: Mapping[str, Sequence[LaneView]]) -> list[str]:
    """Return the kinds that meet both limits on idle devices, without those that are slower and dearer than another."""
    figures: dict[str, tuple[float, float]] = {}
    for kind, lanes in by_kind.items():
        run_s = plan.bound_s(ask.flow, lanes[0].device) or 0.0
        cost = plan.cost(ask.flow, lanes[0].device, run_s)
        in_time = ask.due is None or ask.now + run_s <= ask.due
        if in_time and (ask.cost_limit is None or cost <= ask.cost_limit):
            figures[kind] = run_s, cost
    return [
        kind
        for kind, (run_s, cost) in figures.items()
        if not any(other != (run_s, cost) and other[0] <= run_s and other[1] <= cost for other in figures.values())
    ]
