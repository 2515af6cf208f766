"""Graphs of functions, and the executions of them that have not ended."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from aliquot.core.errors import EventError
from aliquot.core.events import (
    Event,
    ExecutionArrived,
    ExecutionEnded,
    GraphDeployed,
    GraphRemoved,
    StageSkipped,
)
from aliquot.core.model import FlowKey, GraphSpec
from aliquot.core.validate import graph_problems

if TYPE_CHECKING:
    from aliquot.core.registry import Registry


class Graphs:
    """The deployed graphs."""

    def __init__(self, registry: "Registry") -> None:
        self._registry = registry
        self.specs: dict[tuple[str, str], GraphSpec] = {}  # by tenant and name

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        return {
            GraphDeployed: self._deployed,
            GraphRemoved: self._removed,
            ExecutionArrived: self._arrived,
            StageSkipped: lambda _: None,
            ExecutionEnded: lambda _: None,
        }

    def _deployed(self, event: GraphDeployed) -> None:
        for problem in graph_problems(event.graph):
            raise EventError(f"graph {event.graph.name}: {problem}")
        for stage in event.graph.stages:
            if FlowKey(event.tenant, stage.function) not in self._registry.flows:
                raise EventError(f"graph {event.graph.name}, stage {stage.name}: there is no function {stage.function}")
        self.specs[event.tenant, event.graph.name] = event.graph

    def _removed(self, event: GraphRemoved) -> None:
        if self.specs.pop((event.tenant, event.graph), None) is None:
            raise EventError(f"tenant {event.tenant} has no graph {event.graph}")

    def _arrived(self, event: ExecutionArrived) -> None:
        if (event.tenant, event.graph) not in self.specs:
            raise EventError(f"tenant {event.tenant} has no graph {event.graph}")
