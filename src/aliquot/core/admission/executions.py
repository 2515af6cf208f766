"""Executions of graphs: promise or refuse them as one, and keep the places of their stages until they are needed.

`drafts.py` finds the places. A stage's call takes its place when it arrives. A stage that is skipped gives it back.
"""

from collections.abc import Callable, Mapping
from math import log
from typing import cast

from aliquot.core.admission.drafts import Draft, GraphPlanner
from aliquot.core.admission.estimates import TimeWindow
from aliquot.core.admission.interfaces import Admission, GraphAsk
from aliquot.core.admission.placement import KindChoice, Placements, StageChoices
from aliquot.core.admission.placing import Placer
from aliquot.core.admission.plan import Plan
from aliquot.core.admission.promises import Promises
from aliquot.core.admission.records import Blame, Late, Offer, Refusal, RefusalCause
from aliquot.core.admission.stages import PlannedExecution
from aliquot.core.calls import Calls
from aliquot.core.clock import after
from aliquot.core.commands import Command, Fail, Promise, Reject
from aliquot.core.errors import EventError
from aliquot.core.events import (
    Event,
    ExecutionArrived,
    ExecutionEnded,
    GraphDeployed,
    GraphRemoved,
    InvocationArrived,
    StageSkipped,
)
from aliquot.core.flow import Flow
from aliquot.core.model import GraphSpec
from aliquot.core.records import Invocation
from aliquot.core.validate import graph_problems
from aliquot.core.waiting import queue_in_order

MIN_RUNS = 8  # of every stage, before a graph is refused for ever
STEP = 0.05  # relative change of a time or cost, below which the placements of a graph are not computed again


class Graph:
    """A deployed graph, with what was learned from its executions."""

    def __init__(self, spec: GraphSpec) -> None:
        self.spec = spec
        self.hops = TimeWindow()  # from the ends of stages to the arrivals of those after them
        self.probe: str | None = None  # an execution that runs without a promise, to learn from it
        self._choices: list[StageChoices] = []
        self._placements: Placements | None = None

    def placements(self, choices: list[StageChoices]) -> Placements:
        """Return the efficient placements. They are computed again when times or costs have changed."""
        rounded = [stage._replace(choices=tuple(_rounded(each) for each in stage.choices)) for stage in choices]
        if self._placements is None or rounded != self._choices:
            self._choices = rounded
            self._placements = Placements(choices)
        return self._placements


class Executions:
    """The deployed graphs, and the executions of them that are promised or probes."""

    def __init__(
        self,
        policy: Admission,
        plan: Plan,
        promises: Promises,
        calls: Calls,
        placer: Placer,
        outbox: list[Command],
    ) -> None:
        self._policy = policy
        self._plan = plan
        self._promises = promises
        self._calls = calls
        self._placer = placer
        self._outbox = outbox
        self.graphs: dict[tuple[str, str], Graph] = {}  # by tenant and name
        self.open: dict[str, PlannedExecution] = {}

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        return {
            GraphDeployed: self._deployed,
            GraphRemoved: self._removed,
            ExecutionArrived: self._arrived,
            StageSkipped: self._skipped,
            ExecutionEnded: self._ended,
        }

    # --- graphs -----------------------------------------------------------------------------------------

    def _deployed(self, event: GraphDeployed) -> None:
        for problem in graph_problems(event.graph):
            raise EventError(f"graph {event.graph.name}: {problem}")
        for stage in event.graph.stages:
            if self._plan.flow(event.tenant, stage.function) is None:
                raise EventError(f"graph {event.graph.name}, stage {stage.name}: there is no function {stage.function}")
        self.graphs[event.tenant, event.graph.name] = Graph(event.graph)

    def _removed(self, event: GraphRemoved) -> None:
        if self.graphs.pop((event.tenant, event.graph), None) is None:
            raise EventError(f"tenant {event.tenant} has no graph {event.graph}")

    # --- arrivals ---------------------------------------------------------------------------------------

    def _arrived(self, event: ExecutionArrived) -> None:
        graph = self.graphs.get((event.tenant, event.graph))
        if graph is None:
            raise EventError(f"tenant {event.tenant} has no graph {event.graph}")
        if event.execution in self.open:
            raise EventError(f"execution {event.execution} has arrived twice")
        if (event.deadline_s is None and event.cost_limit is None) or not self._policy.plans_graphs:
            return
        flows: dict[str, Flow] = {}
        for stage in graph.spec.stages:
            flow = self._plan.flow(event.tenant, stage.function)
            if flow is None or flow.misfit is not None:
                missing = "its function is not deployed any more" if flow is None else flow.misfit
                self._outbox.append(Reject(event.execution, f"stage {stage.name}: {missing}"))
                return
            flows[stage.name] = flow
        self._decide(event, graph, flows)

    def _decide(self, event: ExecutionArrived, graph: Graph, flows: Mapping[str, Flow]) -> None:
        now = self._plan.now
        execution = PlannedExecution(event.execution, event.tenant, event.graph, now)
        execution.late, execution.cost_limit = event.late, event.cost_limit
        execution.hop_s = graph.hops.bound(0.0, now) or 0.0 if len(graph.hops) else 0.0
        due = None
        if event.deadline_s is not None:
            execution.deadline = after(now, event.deadline_s)
            due = execution.deadline - self._policy.margin_s
        ask = GraphAsk(graph.spec, flows, now, due, event.cost_limit, event.prefer)
        planner = GraphPlanner(self._policy, self._plan, self._placer, ask, execution)
        unknown = planner.unknown()
        if unknown is not None:
            self._probe_or_refuse(execution, graph, unknown)
            return
        planner.count_demand()
        placements = graph.placements(planner.choices())
        for kinds in self._policy.candidates(ask, placements):
            draft = planner.draft(kinds, due, event.cost_limit)
            if draft is not None and planner.confirm(draft):
                self._promise(execution, draft)
                return
        self._refuse(execution, graph, planner, ask, placements)

    def _promise(self, execution: PlannedExecution, draft: Draft) -> None:
        execution.promised = True
        self.open[execution.id] = execution
        kinds = tuple(dict.fromkeys(each.block.lanes[0].device.spec.kind for each in draft.stages))
        ends = max(each.block.ends for each in draft.stages)
        reason = f"all {len(draft.stages)} stages end {ends - execution.arrived:.6g} s after its arrival at the latest"
        self._outbox.append(Promise(execution.id, execution.deadline, ends, draft.cost, kinds, reason))

    def _probe_or_refuse(self, execution: PlannedExecution, graph: Graph, stage: str) -> None:
        if graph.probe is None:
            graph.probe = execution.id
            self.open[execution.id] = execution
            return
        reason = f"stage {stage}: nothing is known about its run time, and a first execution is under way"
        self._outbox.append(Reject(execution.id, reason, Refusal(RefusalCause.UNKNOWN)))

    def _refuse(
        self,
        execution: PlannedExecution,
        graph: Graph,
        planner: GraphPlanner,
        ask: GraphAsk,
        placements: Placements,
    ) -> None:
        """Refuse an execution, and say what would be accepted now."""
        now, points = ask.now, placements.points()
        limit_s = None if ask.due is None else ask.due - now
        needs_s, cost = points[0][0], points[-1][1]
        cause = RefusalCause.DEADLINE
        if limit_s is not None and needs_s > limit_s:
            cause = RefusalCause.NEVER
        elif placements.never(limit_s, ask.cost_limit):
            cause = RefusalCause.COST
        elif any(self._ahead_of_share(ask, stage.name) for stage in ask.graph.stages):
            cause = RefusalCause.SHARE
        if cause is RefusalCause.NEVER and graph.probe is None and self._few_runs(ask):
            self._probe_or_refuse(execution, graph, "")
            return
        offer = None if cause is RefusalCause.SHARE else self._offer(planner, ask)
        earliest_s = None if offer is None else offer.deadline_s
        if offer is not None and limit_s is not None and earliest_s is not None and earliest_s <= limit_s:
            offer = None if ask.cost_limit is None else offer
        retry_s = None if earliest_s is None or limit_s is None else max(0.0, earliest_s - limit_s)
        reason = _reason(cause, needs_s, earliest_s, limit_s, cost, ask.cost_limit)
        self._outbox.append(Reject(execution.id, reason, Refusal(cause, needs_s, earliest_s, cost, offer, retry_s)))

    def _offer(self, planner: GraphPlanner, ask: GraphAsk) -> Offer | None:
        """Return limits that the plan would take now: the cost limit if it can stay, or else more of both."""
        for cost_limit in dict.fromkeys((ask.cost_limit, None)):
            draft = planner.draft(None, None, cost_limit)
            if draft is not None:
                planner.take_back(draft)
                cost = draft.cost if cost_limit is None else cost_limit
                return Offer(draft.ends - ask.now + self._policy.margin_s, cost)
        return None

    def _ahead_of_share(self, ask: GraphAsk, stage: str) -> bool:
        """Return whether the tenant has reserved more than its share on all kinds of a stage."""
        flow = cast(Flow, ask.flows[stage])
        now = ask.now
        if ask.due is None or self._plan.share(flow.key.tenant, now) >= 1:
            return False
        kinds = dict.fromkeys(own.spec.kind for own in flow.classes)
        return bool(kinds) and all(self._plan.kind(kind).tag(flow.key.tenant, now) > ask.due for kind in kinds)

    def _few_runs(self, ask: GraphAsk) -> bool:
        for flow in ask.flows.values():
            devices = {lane.device.spec.kind: lane.device for lane in self._plan.lanes(flow, ask.now)}
            if all(self._plan.runs(flow, device) < MIN_RUNS for device in devices.values()):
                return True
        return False

    # --- stages -----------------------------------------------------------------------------------------

    def stage_arrived(self, event: InvocationArrived, number: int, now: float) -> Invocation | None:
        """Let the call of a stage take its place in the plan. Return None if it has none and is a plain call."""
        execution = self.open.get(event.execution or "")
        stage = None if execution is None else execution.stages.get(event.stage or "")
        if stage is None or stage.arrived or stage.ended is not None or stage.block is None:
            return None
        if stage.invocation.flow.key != (event.tenant, event.function):
            return None
        if stage.before:
            ended = max((each.ended for each in stage.before if each.ended is not None), default=now)
            self.graphs_of(stage.execution).hops.record(now - ended, now)
        invocation = stage.invocation
        invocation.arrive(event.invocation, number, now)
        stage.arrived = True
        self._calls.open[invocation.id] = invocation
        invocation.flow.promised[invocation.id] = invocation
        lanes = stage.block.lanes
        lanes[0].plan.refresh(lanes, now)
        self._plan.touch(lanes)
        return invocation

    def graphs_of(self, execution: PlannedExecution) -> Graph:
        """Return the graph of an execution, or one that nobody uses if it was removed."""
        found = self.graphs.get((execution.tenant, execution.graph))
        return Graph(GraphSpec(execution.graph, ())) if found is None else found

    def refuses(self, event: InvocationArrived) -> bool:
        """Refuse a call of an execution that ends because its promise was broken, and return whether it is one."""
        execution = self.open.get(event.execution or "")
        if execution is None or execution.promised or not execution.stages or execution.late is Late.RUN:
            return False
        self._outbox.append(Reject(event.invocation, "the promise of its execution was broken"))
        return True

    def _skipped(self, event: StageSkipped) -> None:
        execution = self.open.get(event.execution)
        stage = None if execution is None else execution.stages.get(event.stage)
        if stage is None or stage.arrived or stage.ended is not None:
            return
        self._withdraw(stage.invocation)
        self._plan.stage_ended(stage, self._plan.now)

    def _ended(self, event: ExecutionEnded) -> None:
        execution = self.open.pop(event.execution, None)
        if execution is None:
            return
        graph = self.graphs.get((execution.tenant, execution.graph))
        if graph is not None and graph.probe == execution.id:
            graph.probe = None
        for stage in execution.stages.values():
            if not stage.arrived:
                self._withdraw(stage.invocation)
        if not execution.promised:
            return
        now = self._plan.now
        if execution.deadline is not None and now > execution.deadline:
            self._promises.broken_as_one(execution, Blame.PLATFORM, f"it ended {now - execution.deadline:g} s late")
        else:
            self._promises.kept += 1
            execution.promised = False
        for stage in execution.stages.values():
            if stage.invocation.objective is not None:
                stage.invocation.objective.promised = False

    def _withdraw(self, invocation: Invocation) -> None:
        """Give back the place of a stage that has not begun."""
        objective = invocation.objective
        if objective is not None and objective.block is not None and not objective.block.running:
            self._plan.withdraw(invocation)

    # --- broken promises --------------------------------------------------------------------------------

    def flow_closed(self, flow: Flow) -> None:
        """Break the promises of executions that have stages of a function which is removed."""
        for execution in list(self.open.values()):
            planned = (stage for stage in execution.stages.values() if stage.invocation.flow is flow)
            if any(stage.ended is None for stage in planned):
                self._promises.broken_as_one(execution, Blame.PLATFORM, f"{flow.key} was removed")
        self.release_broken(self._plan.now)

    def release_broken(self, now: float) -> None:
        """Give back the places of executions whose promises were broken. Their calls go on as plain ones, or end."""
        while self._promises.broken_executions:
            execution = self._promises.broken_executions.pop()
            for stage in execution.stages.values():
                invocation = stage.invocation
                if invocation.objective is not None:
                    invocation.objective.promised = False
                self._withdraw(invocation)
                if invocation.id not in invocation.flow.promised:
                    continue
                if execution.late is Late.DROP:
                    self._calls.withdraw(invocation, now=now)
                    self._outbox.append(Fail(invocation.id, "the promise of its execution was broken"))
                    self._calls.settle(invocation.flow, now=now)
                else:
                    del invocation.flow.promised[invocation.id]
                    queue_in_order(invocation.flow, invocation)


def _rounded(choice: KindChoice) -> KindChoice:
    return choice._replace(latency_s=_step(choice.latency_s), cost=_step(choice.cost))


def _step(value: float) -> float:
    return round(log(value) / STEP) if value > 0 else -1e9


def _reason(
    cause: RefusalCause,
    needs_s: float,
    earliest_s: float | None,
    limit_s: float | None,
    cost: float,
    cost_limit: float | None,
) -> str:
    if cause is RefusalCause.COST:
        return f"costs {cost:.6g} at least in time, and may cost {cost_limit:g}"
    if cause is RefusalCause.SHARE:
        return "its tenant has reserved more than its share while others are active"
    earliest = "" if earliest_s is None else f", earliest end {1000 * earliest_s:.4g} ms"
    limit = "" if limit_s is None else f", limit {1000 * limit_s:.4g} ms"
    return f"needs {1000 * needs_s:.4g} ms{earliest}{limit}"
