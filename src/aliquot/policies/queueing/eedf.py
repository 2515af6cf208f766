"""Earliest effective deadline first: choose the head with the smallest arrival time plus run estimate."""

from aliquot.core.interfaces import Choice
from aliquot.core.view import FlowView, View
from aliquot.policies.queueing.parts.placement import sticky
from aliquot.policies.queueing.parts.shortest import Shortest


class Eedf(Shortest):
    def key(self, flow: FlowView, run_s: float) -> tuple[float, float]:
        return flow.head.arrived + run_s, flow.head.number

    def choose(self, view: View) -> Choice | None:
        flow = self.flows.first()
        place = sticky(view, flow) if flow else None
        return Choice(flow, *place, "earliest arrival + run") if flow and place else None
