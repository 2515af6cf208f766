"""Executions of workflows and sequences with a deadline or a cost limit: the scheduler promises or refuses them whole.

The scheduler knows the graph of an execution, and plans its stages before the first call. Each call tells which stage
it is. Stages that will not run are given back, and the end of the execution ends its promise.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Coroutine
from typing import TypeAlias

from aliquot.core.admission.records import Blame
from aliquot.core.commands import BreakPromise, Reject
from aliquot.core.events import Event, ExecutionArrived, ExecutionEnded, GraphDeployed, GraphRemoved, StageSkipped
from aliquot.core.model import GraphSpec
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.errors import NotPromisedError, OverloadedError
from aliquot.live.invocations.objective import CallObjective, StageCall

MAX_GRAPHS = 1000  # that the scheduler knows, those that were executed last

Json: TypeAlias = dict[str, object]


class LimitedExecution:
    """One execution with limits, from its arrival to its end."""

    def __init__(
        self,
        executions: "LimitedExecutions",
        call: Call,
        objective: CallObjective,
        stages: tuple[str, ...],
        broken: Callable[[str], None],
    ) -> None:
        """`broken` is called with the reason when its promise is broken and it is to end then."""
        self._executions = executions
        self.id = call.id
        self.objective = objective
        self.uncalled = dict.fromkeys(stages)  # stages that may still be called
        self.cost: float | None = 0.0  # of the calls that have ended; None if some ended before a restart
        self.arrived_s = 0.0
        self._broken = broken

    def place(self, stage: str) -> StageCall:
        """Return what the call of a stage takes along. One that has been called before, as in a retry, has no place."""
        return StageCall(self.id, stage if stage in self.uncalled else "", self.objective.limits.late)

    def keep_only(self, possible: Container[str]) -> None:
        """Give back the stages that will not be called any more."""
        for stage in [one for one in self.uncalled if one not in possible]:
            self._executions.skip(self.id, stage)

    def break_promise(self, blame: Blame, reason: str) -> None:
        """Note that the promise is broken, and end the execution if it is to end then."""
        self.objective.blame = blame
        if self.objective.dropped:
            self._broken(f"its promise was broken: {reason}")

    def end(self) -> Json:
        """End the promise, and return the annotations of its record."""
        objective, now_s = self.objective, self._executions.now()
        self._executions.ended(self.id)
        objective.met = not objective.dropped and objective.is_met(now_s - self.arrived_s, self.cost)
        self._executions.count(objective)
        notes: Json = {"objective": objective.describe(met=objective.met)}
        if self.cost is not None:
            notes["cost"] = round(self.cost, 6)
        return notes


class LimitedExecutions:
    """The executions with limits that have not ended, and the graphs that the scheduler knows."""

    def __init__(
        self,
        post: Callable[[Event], None],
        stepped: Callable[[], Coroutine[None, None, None]],
        now: Callable[[], float],
        flow_of: Callable[[str, str], str],
    ) -> None:
        """`post` reports events to the scheduler, and `stepped` waits until it has taken its next step.

        `flow_of` returns the flow of a tenant's function.
        """
        self.flow_of = flow_of
        self.counts: dict[str, int] = {}  # calls and executions by their end: refused, kept, broken, unpromised
        self._post = post
        self._stepped = stepped
        self.now = now  # the platform's clock
        self.open: dict[str, LimitedExecution] = {}
        self._deciding: dict[str, asyncio.Task[None]] = {}  # by call
        self._graphs: OrderedDict[tuple[str, str], GraphSpec] = OrderedDict()  # by tenant and name

    async def admit(self, call: Call, graph: GraphSpec, broken: Callable[[str], None]) -> LimitedExecution | None:
        """Let the scheduler decide about an execution. Return None if it is refused, and write the reason to the call.

        The functions of the graph are deployed.
        """
        objective = call.objective
        assert objective is not None  # noqa: S101 - the callers look at it
        names = tuple(stage.name for stage in graph.stages)
        execution = self.open[call.id] = LimitedExecution(self, call, objective, names, broken)
        execution.arrived_s = call.run.arrived_s = self.now()
        self._deploy(call.namespace.name, graph)
        limits = objective.limits
        arrival = (limits.deadline_s, limits.cost, limits.late, limits.prefer)
        self._post(ExecutionArrived(call.id, call.namespace.name, graph.name, *arrival))
        await self._stepped()
        if call.id in self.open:
            return execution
        call.reason = objective.reason
        self.count(objective)
        return None

    def decide_later(self, call: str, begin: Coroutine[None, None, None]) -> None:
        """Run a coroutine that admits a call whose caller waits, and begins it."""
        task = self._deciding[call] = asyncio.get_running_loop().create_task(begin)
        task.add_done_callback(lambda _: self._deciding.pop(call, None))

    async def decided(self, call: str) -> None:
        """Wait until a call has begun or was refused."""
        deciding = self._deciding.get(call)
        if deciding is not None:
            await asyncio.wait((deciding,))

    def restored(self, call: Call, age_s: float) -> LimitedExecution:
        """Return an execution that an earlier server has admitted. Its promise is broken, but it may be in time."""
        objective = call.objective
        assert objective is not None  # noqa: S101 - the callers look at it
        execution = LimitedExecution(self, call, objective, (), lambda _: None)
        execution.arrived_s, execution.cost = self.now() - age_s, None
        if objective.promised:
            objective.blame = Blame.RESTART
        return execution

    def _deploy(self, tenant: str, graph: GraphSpec) -> None:
        """Report a graph that is new or has changed, and drop the one that has not been executed for longest."""
        key, graphs = (tenant, graph.name), self._graphs
        if graphs.get(key) != graph:
            self._post(GraphDeployed(tenant, graph))
            graphs[key] = graph
        graphs.move_to_end(key)
        if len(graphs) > MAX_GRAPHS:
            (old_tenant, old_name), _ = graphs.popitem(last=False)
            self._post(GraphRemoved(old_tenant, old_name))

    def called(self, stage: StageCall) -> None:
        """Note that the call of a stage arrives."""
        execution = self.open.get(stage.execution)
        if execution is not None:
            execution.uncalled.pop(stage.stage, None)

    def skip(self, execution: str, stage: str) -> None:
        """Report that a stage will not run."""
        found = self.open.get(execution)
        if found is not None and stage in found.uncalled:
            del found.uncalled[stage]
            self._post(StageSkipped(execution, stage))

    def ended(self, execution: str) -> None:
        """Report that no further call of an execution will arrive."""
        if self.open.pop(execution, None) is not None:
            self._post(ExecutionEnded(execution))

    def count(self, objective: CallObjective) -> None:
        """Count how a call or an execution with an objective ended."""
        end, _ = objective.end()
        self.counts[end] = self.counts.get(end, 0) + 1

    def refused(self, command: Reject) -> bool:
        """Take a refusal, and return whether it is that of an execution."""
        execution = self.open.pop(command.invocation, None)
        if execution is None:
            return False
        execution.objective.refusal, execution.objective.reason = command.refusal, command.reason
        return True

    def broken(self, command: BreakPromise) -> None:
        """Take a broken promise of an execution."""
        execution = self.open.get(command.invocation)
        if execution is not None:
            execution.break_promise(command.blame, command.reason)


def not_taken(call: Call) -> Exception:
    """Return the error for an execution that was refused before it was durable."""
    refusal = None if call.objective is None else call.objective.refusal
    return OverloadedError(call.reason) if refusal is None else NotPromisedError(call.reason, refusal)
