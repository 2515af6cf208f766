"""Shortest job first: choose the flow with the smallest run estimate, in an idle sandbox of its own if it has one."""

from aliquot.core.interfaces import Choice
from aliquot.core.view import FlowView, View
from aliquot.policies.queueing.parts.placement import sticky
from aliquot.policies.queueing.parts.shortest import Shortest


class Sjf(Shortest):
    def key(self, flow: FlowView, run_s: float) -> tuple[float, float]:
        return run_s, flow.head.number

    def choose(self, view: View) -> Choice | None:
        flow = self.flows.first()
        place = sticky(view, flow) if flow else None
        return Choice(flow, *place, "shortest run") if flow and place else None
