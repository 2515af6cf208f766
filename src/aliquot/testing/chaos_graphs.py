"""Executions of random graphs for a shell that misbehaves: stages are skipped, fail, or never come."""

from collections.abc import Iterable
from random import Random

from aliquot.core.admission.records import Late, Prefer
from aliquot.core.events import Event, ExecutionArrived, ExecutionEnded, GraphDeployed, InvocationArrived, StageSkipped
from aliquot.core.model import GraphSpec, GraphStage

MAX_STAGES = 4
SKIPPED, ABANDONED = 0.2, 0.05  # probabilities


class ChaosExecution:
    """An execution that has arrived and not ended."""

    def __init__(self, tenant: str, graph: GraphSpec) -> None:
        self.tenant = tenant
        self.waiting = {stage.name: stage for stage in graph.stages}
        self.running: dict[str, str] = {}  # stages by call
        self.ended: dict[str, None] = {}
        self.failed = False


class ChaosGraphs:
    """Makes executions, and the events of their stages."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._open: dict[str, ChaosExecution] = {}
        self._arrived: dict[str, ChaosExecution] = {}  # in the current step, so it may still be refused
        self._made = 0

    def arrive(self, deployed: Iterable[tuple[str, str]]) -> tuple[str, list[Event]] | None:
        """Return the name of a new execution of a new graph, and its events, if a function is deployed."""
        listed = list(deployed)
        if not listed:
            return None
        random, name = self._random, f"e{self._made}"
        self._made += 1
        tenant = random.choice(listed)[0]
        functions = [function for owner, function in listed if owner == tenant]
        stages: list[GraphStage] = []
        for number in range(random.randint(1, MAX_STAGES)):
            after = tuple(stage.name for stage in stages if random.random() < 0.5)  # noqa: PLR2004 - a coin
            stages.append(GraphStage(f"s{number}", random.choice(functions), after))
        graph = GraphSpec(f"graph {random.randrange(3)}", tuple(stages))
        self._arrived[name] = ChaosExecution(tenant, graph)
        deadline_s = random.choice((None, 1e-6, 3, 20, 100, 31_536_000))
        cost_limit = random.choice((None, None, 0, 10_000))
        late, prefer = random.choice(list(Late)), random.choice(list(Prefer))
        arrived = ExecutionArrived(name, tenant, graph.name, deadline_s, cost_limit, late, prefer)
        return name, [GraphDeployed(tenant, graph), arrived]

    def proceed(self) -> tuple[list[str], list[Event]]:
        """Return the calls that arrive, and their events and those of executions that end."""
        calls, events = list[str](), list[Event]()
        for name, execution in list(self._open.items()):
            abandoned = execution.failed or self._random.random() < ABANDONED
            for stage in [] if abandoned else list(execution.waiting.values()):
                if all(before in execution.ended for before in stage.after):
                    events += self._begin(name, execution, stage, calls)
            if (abandoned or not execution.waiting) and not execution.running:
                del self._open[name]
                events.append(ExecutionEnded(name))
        return calls, events

    def _begin(self, name: str, execution: ChaosExecution, stage: GraphStage, calls: list[str]) -> list[Event]:
        del execution.waiting[stage.name]
        if self._random.random() < SKIPPED:
            execution.ended[stage.name] = None
            return [StageSkipped(name, stage.name)]
        call = f"{name}/{stage.name}"
        calls.append(call)
        execution.running[call] = stage.name
        return [InvocationArrived(call, execution.tenant, stage.function, execution=name, stage=stage.name)]

    def step_ended(self) -> None:
        """Let the executions that arrived in the step and were not refused go on."""
        self._open.update(self._arrived)
        self._arrived.clear()

    def call_ended(self, call: str, how: str) -> None:
        """Note the end of a call, or of an execution that was refused."""
        self._arrived.pop(call, None)
        self._open.pop(call, None)
        execution = self._open.get(call.partition("/")[0])
        if execution is not None and call in execution.running:
            execution.ended[execution.running.pop(call)] = None
            execution.failed |= how != "Complete"

    def __len__(self) -> int:
        return len(self._open)
