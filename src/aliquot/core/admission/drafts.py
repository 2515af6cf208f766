"""Find places for all stages of an execution, or for none.

Stages are placed in the order of the graph, each behind the ends of those before it. A draft is in the plan, so that
its stages do not take the same place, but no sandbox is started for it before it is confirmed.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import cast

from msgspec import Struct

from aliquot.core.admission.blocks import TOLERANCE_S, Block
from aliquot.core.admission.interfaces import Admission, Ask, GraphAsk, PlannedPlace
from aliquot.core.admission.lanes import Lane
from aliquot.core.admission.network import in_order
from aliquot.core.admission.objective import MIN_PATIENCE_S, PATIENCE_RUNS, Objective
from aliquot.core.admission.placement import KindChoice, StageChoices
from aliquot.core.admission.placing import Placer
from aliquot.core.admission.plan import Plan
from aliquot.core.admission.stages import PlannedExecution, PlannedStage
from aliquot.core.flow import Flow
from aliquot.core.records import Invocation

MIN_STEP_S = 1e-6  # between the keys of stages that follow each other


class DraftedStage(Struct, gc=False):
    """A stage with its place, and the block as it was before."""

    stage: PlannedStage
    placement: PlannedPlace
    block: Block
    size: int
    length_s: float


class Draft(Struct, gc=False):
    """All stages of an execution with their places."""

    stages: list[DraftedStage]
    ends: float = 0
    cost: float = 0


class GraphPlanner:
    """Drafts executions of one graph at one moment."""

    def __init__(
        self, policy: Admission, plan: Plan, placer: Placer, ask: GraphAsk, execution: PlannedExecution
    ) -> None:
        self._policy = policy
        self._plan = plan
        self._placer = placer
        self._ask = ask
        self._execution = execution
        self._stages = {stage.name: stage for stage in ask.graph.stages}
        self._order = in_order({stage.name: stage.after for stage in ask.graph.stages})
        self._lanes = {name: self._lanes_by_kind(name) for name in self._order}

    def _flow(self, stage: str) -> Flow:
        return cast(Flow, self._ask.flows[stage])

    def _lanes_by_kind(self, stage: str) -> dict[str, list[Lane]]:
        """Return the lanes in which a stage could run and for which a bound is known."""
        kinds: dict[str, list[Lane]] = {}
        flow = self._flow(stage)
        for lane in self._plan.lanes(flow, self._ask.now):
            if self._plan.bound_s(flow, lane.device) is not None:
                kinds.setdefault(lane.device.spec.kind, []).append(lane)
        return kinds

    def unknown(self) -> str | None:
        """Return a stage of which no run time is known."""
        return next((name for name, kinds in self._lanes.items() if not kinds), None)

    def choices(self) -> list[StageChoices]:
        """Return latency and cost of each stage on each kind of device. Starts are ordered ahead and take no time."""
        found = []
        for name in self._order:
            flow = self._flow(name)
            of_kind = []
            for kind, lanes in self._lanes[name].items():
                device = lanes[0].device
                run_s = self._plan.bound_s(flow, device) or 0.0
                warm = any(flow.resident_on(lane.device) or flow.index in lane.sandboxes for lane in lanes)
                start_s = 0.0 if warm else self._plan.start_s(flow, device)
                of_kind.append(
                    KindChoice(kind, run_s + self._hop_s(name), self._plan.cost(flow, device, run_s + start_s))
                )
            found.append(StageChoices(name, tuple(of_kind), self._stages[name].after))
        return found

    def _hop_s(self, stage: str) -> float:
        return self._execution.hop_s if self._stages[stage].after else 0.0

    def _length_s(self, stage: str, kinds: Mapping[str, str] | None, *, batched: bool) -> float:
        """Return the longest run of a stage on its kind, or the shortest over all kinds."""
        flow, own = self._flow(stage), self._lanes[stage]
        named = own if kinds is None else {kinds[stage]: own[kinds[stage]]}
        lengths = []
        for kind, lanes in named.items():
            demand = self._plan.kind(kind).flows.get(flow.index)
            size = demand.size if batched and demand is not None else 1
            lengths.append(self._plan.bound_s(flow, lanes[0].device, size) or 0.0)
        return min(lengths)

    def _tails(self, kinds: Mapping[str, str] | None, *, batched: bool) -> dict[str, float]:
        """Return the time from the end of each stage to the end of the graph."""
        tails = dict.fromkeys(self._order, 0.0)
        for name in reversed(self._order):
            length_s = max(MIN_STEP_S, self._length_s(name, kinds, batched=batched)) + self._hop_s(name)
            for before in self._stages[name].after:
                tails[before] = max(tails[before], length_s + tails[name])
        return tails

    def path_s(self, kinds: Mapping[str, str] | None = None) -> float:
        """Return the time that the graph takes on idle devices."""
        tails = self._tails(kinds, batched=False)
        firsts = [name for name in self._order if not self._stages[name].after]
        return max(tails[name] + self._length_s(name, kinds, batched=False) for name in firsts)

    def count_demand(self) -> None:
        """Count the stages to the demand on the kinds of devices that could run them."""
        for ask in self._asks(None, self._ask.due).values():
            self._plan.asked(ask)

    def _asks(self, kinds: Mapping[str, str] | None, due: float | None) -> dict[str, Ask]:
        """Make the questions for all stages, with their due times and their order."""
        now, prefer = self._ask.now, self._ask.prefer
        tails, orders = self._tails(kinds, batched=False), self._tails(kinds, batched=True)
        last = due if due is not None else now + max(MIN_PATIENCE_S, PATIENCE_RUNS * self.path_s())
        made: dict[str, Ask] = {}
        for name in self._order:
            invocation = Invocation(f"{self._execution.id}/{name}", -1, self._flow(name), now)
            stage_due = None if due is None else due - tails[name]
            objective = Objective(stage_due, self._ask.cost_limit, self._execution.late, prefer)
            objective.stage = PlannedStage(self._execution, name, invocation, last - orders[name])
            invocation.objective = objective
            invocation.deadline = self._execution.deadline
            made[name] = Ask(invocation, invocation.flow, now, stage_due, None, prefer)
        return made

    def draft(self, kinds: Mapping[str, str] | None, due: float | None, cost_limit: float | None) -> Draft | None:
        """Place all stages on these kinds of devices, or leave the plan as it is and return None."""
        draft, now = Draft([]), self._ask.now
        stages: dict[str, PlannedStage] = {}
        for name, ask in self._asks(kinds, due).items():
            invocation = cast(Invocation, ask.call)
            stage = cast(PlannedStage, cast(Objective, invocation.objective).stage)
            stages[name] = stage
            for before in self._stages[name].after:
                stage.before.append(stages[before])
                stages[before].after.append(stage)
            ready = max((each.ends_at(now) + self._execution.hop_s for each in stage.before), default=now)
            asked = Ask(invocation, invocation.flow, now, ask.due, None, ask.prefer, ready)
            placement = self._place(asked, name, kinds, None if cost_limit is None else cost_limit - draft.cost)
            if placement is None:
                self.take_back(draft)
                return None
            self._commit(draft, stage, placement)
        if draft.ends > (inf if due is None else due) + TOLERANCE_S:
            self.take_back(draft)
            return None
        return draft

    def _place(self, ask: Ask, name: str, kinds: Mapping[str, str] | None, cost: float | None) -> PlannedPlace | None:
        own = self._lanes[name]
        named: Sequence[Sequence[Lane]] = list(own.values()) if kinds is None else [own[kinds[name]]]
        if kinds is None:
            plan, flow = self._plan, self._flow(name)
            named = sorted(named, key=lambda at: plan.cost(flow, at[0].device, plan.bound_s(flow, at[0].device) or 0))
        for lanes in named:
            placement = self._policy.place(ask, self._plan, lanes)
            if placement is not None and (cost is None or placement.cost <= cost):
                return placement
        return None

    def _commit(self, draft: Draft, stage: PlannedStage, placement: PlannedPlace) -> None:
        lane = cast(Lane, placement.lane)
        joined = cast("Block | None", placement.block)
        size, length_s = (0, 0.0) if joined is None else (joined.size, joined.length_s)
        sandbox = lane.sandboxes.get(stage.invocation.flow.index)
        block = self._plan.commit(placement, stage.invocation, sandbox, self._ask.now)
        draft.stages.append(DraftedStage(stage, placement, block, size, length_s))
        draft.ends = max(draft.ends, block.ends)
        draft.cost += placement.cost

    def take_back(self, draft: Draft) -> None:
        """Take a draft out of the plan, and give the blocks that have grown for it their length again."""
        for each in reversed(draft.stages):
            self._plan.withdraw(each.stage.invocation)
            if each.size:
                each.block.size, each.block.length_s = each.size, each.length_s
                each.block.lanes[0].plan.refresh(each.block.lanes, self._ask.now)

    def confirm(self, draft: Draft) -> bool:
        """Pin the sandboxes of all stages, and count their time to the tenant. Return False if one cannot start."""
        now = self._ask.now
        for each in draft.stages:
            block, lane = each.block, each.block.lanes[0]
            invocation = each.stage.invocation
            if block.sandbox is None:
                block.sandbox = lane.sandboxes.get(invocation.flow.index) or self._placer.pin(lane, invocation, now)
            if block.sandbox is None:
                self.take_back(draft)
                return False
        for each in draft.stages:
            objective = cast(Objective, each.stage.invocation.objective)
            objective.promised, objective.cost = True, each.placement.cost
            self._plan.reserve(each.stage.invocation, each.placement.length_s / each.placement.size, now)
            each.block.lanes[0].plan.refresh(each.block.lanes, now)
            self._placer.checks.watch(each.block.lanes, now)
            self._execution.stages[each.stage.name] = each.stage
        return True
