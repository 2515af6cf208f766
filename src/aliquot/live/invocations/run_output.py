"""Log lines of runs that have not ended, for each activation of a run."""

from aliquot.live.invocations.call import Call, ChainCall
from aliquot.live.invocations.sandbox_assignments import SandboxAssignments
from aliquot.live.node.base import Node


class RunOutput:
    """Reads the lines that running calls have printed so far."""

    def __init__(self, assignments: SandboxAssignments, node: Node) -> None:
        self._assignments = assignments
        self._node = node

    def of_run(self, call: Call) -> tuple[tuple[str, ...], ...]:
        """Return the lines of each activation in the call's run, innermost first.

        There is at least one entry. The last one begins with the lines of the sandbox's start, if it started for it.
        """
        if call.run.begun_s:
            for sandbox, assignment in self._assignments.items():
                if assignment.call is call.outermost or call in assignment.riders:
                    *inner, outermost = self._node.output(sandbox) or ((),)
                    return (*inner, assignment.logs + outermost)
        return ((),)

    def of_call(self, call: Call) -> tuple[str, ...]:
        """Return the lines that this call itself has printed."""
        outermost = call.outermost
        # A chain prints nothing itself.
        running = [*([] if isinstance(outermost, ChainCall) else [outermost]), *outermost.run.nested]
        pairs = zip(reversed(running), self.of_run(call), strict=False)
        return next((lines for one, lines in pairs if one is call), ())
