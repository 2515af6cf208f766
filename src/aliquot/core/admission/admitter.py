"""Ask the admission policy about calls with an objective, and carry out its decisions."""

from aliquot.core.admission.interfaces import Admission
from aliquot.core.clock import after
from aliquot.core.events import InvocationArrived
from aliquot.core.records import Invocation


class Admitter:
    """The admission policy, and the calls that it has promised."""

    def __init__(self, policy: Admission) -> None:
        self.policy = policy

    def arrived(self, invocation: Invocation, event: InvocationArrived, *, now: float) -> None:
        """Record the objective of a call that has one."""
        if event.deadline_s is not None:
            invocation.deadline = after(now, event.deadline_s)
        invocation.cost_limit = event.cost_limit
