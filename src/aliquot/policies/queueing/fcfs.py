"""First come, first served, over all flows. An idle sandbox is used wherever it is."""

from aliquot.core.interfaces import Choice
from aliquot.core.view import View
from aliquot.policies.queueing.parts.arrival_order import InArrivalOrder
from aliquot.policies.queueing.parts.placement import sticky


class Fcfs(InArrivalOrder):
    def choose(self, view: View) -> Choice | None:
        flow = self.order.first()
        place = sticky(view, flow) if flow else None
        return Choice(flow, *place, "oldest") if flow and place else None
