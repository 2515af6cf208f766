"""Batch: take the flow with the oldest request, and drain it before taking another."""

from aliquot.core.interfaces import Choice, Params, RandomSource
from aliquot.core.view import FlowView, View
from aliquot.policies.queueing.parts.arrival_order import InArrivalOrder
from aliquot.policies.queueing.parts.placement import sticky


class Batch(InArrivalOrder):
    def __init__(self, params: Params, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._draining: FlowView | None = None

    def choose(self, view: View) -> Choice | None:
        oldest = self.order.first()
        if self._draining is None or not self._draining.queued:
            self._draining = oldest
        flow = self._draining
        place = sticky(view, flow) if flow else None
        return Choice(flow, *place, "draining") if flow and place else None
