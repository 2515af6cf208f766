"""Shortest remaining time first, from the thesis, but with estimates instead of the real run times.

Nothing is preempted, so the flow with the smallest estimate goes first, on the device that has been idle longest.
"""

from aliquot.core.interfaces import Choice
from aliquot.core.view import FlowView, View
from aliquot.policies.queueing.parts.placement import least_recent
from aliquot.policies.queueing.parts.shortest import Shortest


class Srtf(Shortest):
    def key(self, flow: FlowView, run_s: float) -> tuple[float, float]:
        return run_s, flow.head.number

    def choose(self, view: View) -> Choice | None:
        flow = self.flows.first()
        place = least_recent(view, flow) if flow else None
        return Choice(flow, *place, "shortest run, longest idle device") if flow and place else None
