"""Blocks: planned runs of one flow, with one call or several.

A call may be a stage of an execution (`stages.py`). Then its block begins when the blocks of the stages before it have
ended, and must have ended when the blocks of the stages after it have to begin.
"""

from math import inf
from typing import TYPE_CHECKING

from aliquot.core.lifecycle import BUSY, WARM

if TYPE_CHECKING:
    from aliquot.core.admission.lanes import Lane
    from aliquot.core.admission.records import Blame
    from aliquot.core.admission.stages import PlannedStage
    from aliquot.core.flow import Flow
    from aliquot.core.records import Invocation, Sandbox

TOLERANCE_S = 1e-9  # of sums of times


class Block:
    """A planned run of one flow, with one call or several."""

    __slots__ = (
        "began", "blame", "due", "ends", "flow", "key", "lanes", "latest", "length_s", "members", "number", "ready",
        "running", "sandbox", "size", "staged", "starts", "work_s",
    )  # fmt: skip

    def __init__(self, number: int, flow: "Flow", lanes: "tuple[Lane, ...]", size: int, length_s: float) -> None:
        self.number = number
        self.flow = flow
        self.lanes = lanes
        self.size = size  # calls that it is reserved for
        self.length_s = length_s
        self.members: list[Invocation] = []
        self.staged = False  # some of them are stages of executions
        self.due = inf  # of the member whose deadline comes first
        self.key: float = 0  # its place in the order of its lanes
        self.starts: float = 0
        self.ends: float = 0
        self.latest = inf  # when it must begin, so that nothing that follows becomes late
        self.work_s: float = 0  # of all blocks up to it in its lane
        self.running = False
        self.began: float = 0  # when it began to run
        self.sandbox: Sandbox | None = None  # that it counts on
        self.ready: float = 0  # when a sandbox is ready, until it counts on one
        self.blame: Blame | None = None  # the reason for which it is late, if it is

    def ready_at(self, now: float) -> float:
        """Return when its sandbox and its inputs will be there.

        A sandbox that is late is believed to take as long again as it is over.
        """
        sandbox = self.sandbox
        if sandbox is None:
            ready = max(now, self.ready)
        elif sandbox.state is WARM or (sandbox.state is BUSY and any(lane in self.lanes for lane in sandbox.occupies)):
            ready = now  # it may run an earlier block of the same lane
        else:
            ready = believed(sandbox.ready_at, now)
        return max(ready, self.inputs_at(now)) if self.staged else ready

    def inputs_at(self, now: float) -> float:
        """Return when the inputs of all its members will be there."""
        return max((stage.inputs_at(now) for stage in self.stages), default=now)

    @property
    def has_inputs(self) -> bool:
        """Return whether all its calls have arrived."""
        return not self.staged or all(stage.arrived for stage in self.stages)

    @property
    def stages(self) -> "list[PlannedStage]":
        """Return the stages among its members."""
        objectives = (member.objective for member in self.members)
        return [each.stage for each in objectives if each is not None and each.stage is not None]

    @property
    def limit(self) -> float:
        """Return when it must have ended: by its due time, and before the stages after it have to begin."""
        if not self.staged:
            return self.due
        return min(self.due, min((stage.latest_end() for stage in self.stages), default=inf))

    def recount(self) -> None:
        """Compute what follows from its members, after one has come or gone."""
        objectives = [member.objective for member in self.members if member.objective is not None]
        self.due = min((objective.due for objective in objectives), default=inf)
        self.staged = any(objective.stage is not None for objective in objectives)


def believed(expected: float, now: float) -> float:
    """Return when something is believed to end that was expected then. What is over takes as long again."""
    return expected if now <= expected else now + (now - expected)
