"""Executions of graphs that are promised as one, and their stages in the plan.

A stage has a place in the plan before its call arrives. It waits for the stages before it. Their planned ends say when
its inputs will be there.
"""

from math import inf
from typing import TYPE_CHECKING

from aliquot.core.admission.blocks import believed
from aliquot.core.admission.records import Late

if TYPE_CHECKING:
    from aliquot.core.admission.blocks import Block
    from aliquot.core.admission.lanes import Lane
    from aliquot.core.records import Invocation


class PlannedExecution:
    """An execution of a graph with a deadline or a cost limit."""

    __slots__ = (
        "arrived", "cost", "cost_limit", "deadline", "graph", "hop_s", "id", "late", "promised", "stages", "tenant",
    )  # fmt: skip

    def __init__(self, name: str, tenant: str, graph: str, arrived: float) -> None:
        self.id = name
        self.tenant = tenant
        self.graph = graph
        self.arrived = arrived
        self.deadline: float | None = None
        self.cost_limit: float | None = None
        self.late = Late.RUN
        self.promised = False
        self.cost: float = 0  # of the calls that have ended
        self.hop_s: float = 0  # from the end of a stage to the arrival of the next, at the latest
        self.stages: dict[str, PlannedStage] = {}

    def overruns(self, now: float) -> bool:
        """Return whether one of its stages runs longer than it was promised with."""
        return any(stage.overruns(now) for stage in self.stages.values())


class PlannedStage:
    """One stage of an execution, with its place in the plan."""

    __slots__ = ("after", "arrived", "before", "ended", "execution", "invocation", "key", "name")

    def __init__(self, execution: PlannedExecution, name: str, invocation: "Invocation", key: float) -> None:
        self.execution = execution
        self.name = name
        self.invocation = invocation  # it has the name of its call from its arrival on
        self.key = key  # its place in the order of a lane, later than those of all stages before it
        self.before: list[PlannedStage] = []
        self.after: list[PlannedStage] = []
        self.arrived = False
        self.ended: float | None = None

    @property
    def block(self) -> "Block | None":
        """Return its place in the plan, until it has ended."""
        objective = self.invocation.objective
        return None if objective is None else objective.block

    def overruns(self, now: float) -> bool:
        """Return whether it runs longer than it was promised with."""
        block, objective = self.block, self.invocation.objective
        return block is not None and block.running and objective is not None and now - block.began > objective.bound_s

    def inputs_at(self, now: float) -> float:
        """Return when its call is expected."""
        if self.arrived:
            return now
        if not self.before:
            return now
        hop_s = self.execution.hop_s
        return believed(max(stage.ends_at(now) for stage in self.before) + hop_s, now)

    def ends_at(self, now: float) -> float:
        """Return when it is planned to end, or has ended."""
        if self.ended is not None:
            return self.ended
        block = self.block
        if block is None:
            return now
        return block.lanes[0].free_from(now) if block.running else block.ends

    def latest_end(self) -> float:
        """Return when it must have ended, so that the stages after it are in time."""
        latest = inf
        for stage in self.after:
            block = None if stage.arrived else stage.block
            if block is not None:
                latest = min(latest, block.latest - self.execution.hop_s)
        return latest

    def lanes_before(self) -> "list[Lane]":
        """Return the lanes of the stages that it waits for."""
        return _lanes(self.before)

    def lanes_after(self) -> "list[Lane]":
        """Return the lanes of the stages that wait for it."""
        return _lanes(self.after)


def _lanes(stages: "list[PlannedStage]") -> "list[Lane]":
    return [stage.block.lanes[0] for stage in stages if stage.block is not None]
