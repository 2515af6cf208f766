"""The objective of a call, from its arrival to its end."""

from math import inf
from typing import TYPE_CHECKING

from aliquot.core.admission.records import Late, Prefer

if TYPE_CHECKING:
    from aliquot.core.admission.blocks import Block
    from aliquot.core.admission.stages import PlannedStage

MIN_PATIENCE_S = 1.0
PATIENCE_RUNS = 20  # after so many runs a call without a deadline goes before later deadlines


class Objective:
    """The limits of one call, whether they are promised, and its place in the plan."""

    __slots__ = (
        "block", "bound_s", "cost", "cost_limit", "due", "kind", "lanes", "late", "prefer", "promised", "stage",
        "work_s",
    )  # fmt: skip

    def __init__(self, due: float | None, cost_limit: float | None, late: Late, prefer: Prefer) -> None:
        self.due = inf if due is None else due
        self.cost_limit = cost_limit
        self.late = late
        self.prefer = prefer
        self.block: Block | None = None
        self.stage: PlannedStage | None = None  # of the execution that is promised as a whole
        self.promised = False
        self.bound_s: float = inf  # of the run it was promised with
        self.cost: float = 0
        self.kind = ""  # of the device that it is planned on
        self.lanes = 1  # that its block takes
        self.work_s: float = 0  # lane time that is counted to its tenant

    def key(self, length_s: float, now: float) -> float:
        """Return its place in the order of a lane. Without a deadline it does not wait for ever."""
        if self.stage is not None:
            return self.stage.key
        return self.due if self.due < inf else now + max(MIN_PATIENCE_S, PATIENCE_RUNS * length_s)
