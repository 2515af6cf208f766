"""Executions of graphs in a simulation: each stage is a call that arrives when the stages before it have ended."""

from collections.abc import Callable, Mapping
from random import Random

from aliquot.core.admission.records import Blame, Refusal
from aliquot.core.events import Event, ExecutionArrived, ExecutionEnded, InvocationArrived, StageSkipped
from aliquot.core.model import GraphSpec, GraphStage
from aliquot.sim.arrivals import Arrival
from aliquot.sim.recorder import RunRecorder, SimulatedCall

Post = Callable[[float, Event], object]


class SimulatedExecution:
    """An execution that has arrived and not ended yet."""

    def __init__(self, name: str, arrival: Arrival, graph: GraphSpec) -> None:
        self.name = name
        self.arrival = arrival
        self.random = Random(f"execution/{name}")
        self.waiting: dict[str, GraphStage] = {stage.name: stage for stage in graph.stages}
        self.running: dict[str, str] = {}  # stages by call
        self.ended: dict[str, None] = {}  # stages, in the order of their ends
        self.cost = 0.0
        self.promised = False
        self.blame: Blame | None = None
        self.failed = False


class SimulatedExecutions:
    """All executions of a simulation."""

    def __init__(self, graphs: Mapping[str, GraphSpec], post: Post, recorder: RunRecorder) -> None:
        self._graphs = graphs
        self._post = post
        self._recorder = recorder
        self._arrived: dict[str, SimulatedExecution] = {}  # in the current step
        self._open: dict[str, SimulatedExecution] = {}
        self._by_call: dict[str, SimulatedExecution] = {}
        self.calls: dict[str, SimulatedCall] = {}  # made and not yet taken by the engine

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def arrive(self, name: str, arrival: Arrival) -> ExecutionArrived:
        """Make the event of an arrival. Its first calls follow after the step, unless the core refuses it."""
        execution = SimulatedExecution(name, arrival, self._graphs[arrival.function])
        self._arrived[name] = self._open[name] = execution
        return ExecutionArrived(
            name, arrival.tenant, arrival.function, arrival.deadline_s, arrival.cost_limit, arrival.late
        )

    def step_ended(self, now: float) -> None:
        """Begin the executions that arrived in the step and were not refused."""
        for execution in self._arrived.values():
            self._proceed(execution, now)
        self._arrived.clear()

    def promised(self, name: str) -> None:
        self._open[name].promised = True

    def broken(self, name: str, blame: Blame) -> None:
        self._open[name].blame = blame

    def refused(self, name: str, refusal: Refusal | None, now: float) -> None:
        execution = self._open.pop(name)
        self._arrived.pop(name, None)
        self._record(execution, "rejected", now, "" if refusal is None else refusal.why)

    def call_ended(self, call: str, cost: float, now: float, *, failed: bool = False) -> None:
        """Continue the execution of a call that has ended, if it has one."""
        execution = self._by_call.pop(call, None)
        if execution is None:
            return
        execution.ended[execution.running.pop(call)] = None
        execution.cost += cost
        execution.failed |= failed
        self._proceed(execution, now)

    def _proceed(self, execution: SimulatedExecution, now: float) -> None:
        """Send the calls whose inputs are there, and end the execution when none is left."""
        ready = True
        while ready and not execution.failed:
            ready = False
            for stage in list(execution.waiting.values()):
                if all(name in execution.ended for name in stage.after):
                    ready |= self._begin(execution, stage, now)
        if not execution.running and (execution.failed or not execution.waiting):
            del self._open[execution.name]
            self._post(now, ExecutionEnded(execution.name))
            self._record(execution, "failed" if execution.failed else "completed", now, "")

    def _begin(self, execution: SimulatedExecution, stage: GraphStage, now: float) -> bool:
        """Send the call of a stage, or return True if it is skipped."""
        del execution.waiting[stage.name]
        if stage.probability < 1 and execution.random.random() >= stage.probability:
            execution.ended[stage.name] = None
            self._post(now, StageSkipped(execution.name, stage.name))
            return True
        call = f"{execution.name}/{stage.name}"
        execution.running[call] = stage.name
        self._by_call[call] = execution
        arrival = Arrival(now, stage.function, execution.arrival.tenant, late=execution.arrival.late)
        self.calls[call] = self._recorder.arrived(arrival, now)
        event = InvocationArrived(
            call, arrival.tenant, stage.function, late=arrival.late, execution=execution.name, stage=stage.name
        )
        self._post(now, event)
        return False

    def _record(self, execution: SimulatedExecution, end: str, now: float, reason: str) -> None:
        self._recorder.execution_ended(
            execution.arrival, end, now, execution.cost, reason, promised=execution.promised, blame=execution.blame
        )
