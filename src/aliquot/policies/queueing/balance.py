"""Balance, from the thesis: first come, first served, on any free device, without regard to residency."""

from aliquot.core.interfaces import Choice
from aliquot.core.view import View
from aliquot.policies.queueing.parts.arrival_order import InArrivalOrder
from aliquot.policies.queueing.parts.placement import least_recent


class Balance(InArrivalOrder):
    def choose(self, view: View) -> Choice | None:
        flow = self.order.first()
        place = least_recent(view, flow) if flow else None
        return Choice(flow, *place, "oldest, longest idle device") if flow and place else None
