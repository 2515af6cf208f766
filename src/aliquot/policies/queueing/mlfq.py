"""Multi-level queues, from the thesis: choose a random non-empty bucket of a duration class, and serve it in order."""

from math import frexp

from aliquot.core.interfaces import Choice, Queueing, RandomSource
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.arrival_order import ArrivalOrder
from aliquot.policies.queueing.parts.placement import least_recent
from aliquot.policies.queueing.parts.shortest import ShortestParams


def duration_class(run_s: float) -> int:
    """Return the exponent of the power of two above the run time. All run times of 0 are in one class."""
    return frexp(run_s)[1]


class Mlfq(Queueing):
    params_type = ShortestParams

    def __init__(self, params: ShortestParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._unknown_s = params.unknown_s
        self._buckets: dict[int, ArrivalOrder] = {}
        self._class_of: dict[int, int] = {}
        self._drawn: int | None = None  # kept until it is served, because waiting is no reason to draw again

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        if flow.queued == 1:  # a flow changes its class only when its queue is empty
            known = flow.run_estimate_s
            self._class_of[flow.index] = duration_class(self._unknown_s if known is None else known)
        self._buckets.setdefault(self._class_of[flow.index], ArrivalOrder()).push(flow, invocation.number)

    def choose(self, view: View) -> Choice | None:
        flow = self._buckets[self._drawn].first() if self._drawn is not None else None
        if flow is None:
            self._drawn = self._draw()
            flow = self._buckets[self._drawn].first()
        place = least_recent(view, flow) if flow else None
        return Choice(flow, *place, f"bucket {self._drawn}") if flow and place else None

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        self._drawn = None

    def closed(self, flow: FlowView, view: View) -> None:
        self._class_of.pop(flow.index, None)

    def _draw(self) -> int:
        filled = [number for number in sorted(self._buckets) if self._buckets[number].first()]
        return filled[self.generator.randrange(len(filled))]
