"""What runs that have not ended have printed so far: each activation's own lines, where several are in one run."""

from aliquot.live.invocations.call import Call
from aliquot.live.invocations.sandbox_assignments import SandboxAssignments
from aliquot.live.node.base import Node


class RunOutput:
    def __init__(self, assignments: SandboxAssignments, node: Node) -> None:
        self._tenancies = assignments
        self._node = node

    def of_run(self, call: Call) -> tuple[tuple[str, ...], ...]:
        """Of its run, innermost first: at least one, and the last with what the sandbox said when it started for it."""
        if call.begun_s:
            for sandbox, assignment in self._tenancies.items():
                if assignment.call is (call.carrier or call):
                    *inner, outermost = self._node.output(sandbox) or ((),)
                    return (*inner, assignment.logs + outermost)
        return ((),)

    def own(self, call: Call) -> tuple[str, ...]:
        outermost = call.carrier or call
        # What carries a chain prints nothing itself.
        running = [*([outermost] if outermost.chain is None else []), *outermost.within]
        pairs = zip(reversed(running), self.of_run(call), strict=False)
        return next((lines for one, lines in pairs if one is call), ())
