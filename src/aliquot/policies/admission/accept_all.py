"""Accept every call and promise nothing. A deadline is only an urgency, for queueing policies that read it."""

from aliquot.core.admission.interfaces import Admission, Ask, Decision, PlanView
from aliquot.core.view import View


class AcceptAll(Admission):
    decides = False

    def arrived(self, ask: Ask, plan: PlanView, view: View) -> Decision:
        return None
