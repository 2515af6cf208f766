"""First come, first served, over all flows. An idle sandbox is used wherever it is."""

from aliquot.core.interfaces import Choice
from aliquot.core.view import FlowView, View
from aliquot.policies.queueing.parts.arrival_order import InArrivalOrder
from aliquot.policies.queueing.parts.placement import sticky, warm_place


class Fcfs(InArrivalOrder):
    def choose(self, view: View) -> Choice | None:
        flow = self.order.first()
        place = sticky(view, flow) if flow else None
        return Choice(flow, *place, "oldest") if flow and place else None

    def choose_alone(self, flow: FlowView, view: View) -> Choice | None:
        place = warm_place(view, flow)
        return Choice(flow, *place, "oldest") if place else None
