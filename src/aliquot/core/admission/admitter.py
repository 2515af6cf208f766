"""Ask the admission policy about calls with an objective, carry out its decisions, and keep the promises.

Blocks are dispatched before plain calls. A block starts when its lane is free and its sandbox is ready. If a run or a
start takes longer than its bound, blocks that no longer fit move to other lanes, or their promises are broken.
"""

from collections.abc import Callable
from math import inf
from typing import cast

from aliquot.core.admission.blocks import TOLERANCE_S, Block
from aliquot.core.admission.estimates import outlook_of
from aliquot.core.admission.executions import Executions
from aliquot.core.admission.filling import fill
from aliquot.core.admission.interfaces import Admission, Ask, PlannedPlace, Probe, Promised, Refused
from aliquot.core.admission.lanes import Lane
from aliquot.core.admission.objective import Objective
from aliquot.core.admission.overruns import LaneChecks, late_members, victim_of
from aliquot.core.admission.placing import Placer
from aliquot.core.admission.plan import Plan
from aliquot.core.admission.promises import Promises, cost_of
from aliquot.core.admission.records import Blame, Late, Refusal, RefusalCause
from aliquot.core.admission.starts import can_start, has_slot, steal, to_run_first
from aliquot.core.calls import Calls
from aliquot.core.clock import after
from aliquot.core.commands import Command, Fail, Promise, Reject
from aliquot.core.dispatcher import Dispatcher
from aliquot.core.events import EstimatesRestored, Event, InvocationArrived
from aliquot.core.flow import Flow
from aliquot.core.lifecycle import SandboxState
from aliquot.core.pool import Pool
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.waiting import admit, queue_in_order

LONGER = "a run or a start before it took longer than its bound"


class Admitter:
    """The admission policy, the plan, and the calls that are promised or wait for a decision."""

    def __init__(
        self,
        policy: Admission,
        plan: Plan,
        promises: Promises,
        pool: Pool,
        calls: Calls,
        dispatcher: Dispatcher,
        outbox: list[Command],
    ) -> None:
        self.policy = policy
        self.plan = plan
        plan.grace_s = policy.margin_s  # due times are deadlines less this margin
        self.promises = promises
        self._pool = pool
        self._calls = calls
        self._dispatcher = dispatcher
        self._outbox = outbox
        self.waiting: dict[str, None] = {}  # calls that wait without a promise
        self._left_to_plain: list[Lane] = []  # idle lanes whose blocks start unless a plain call takes them
        self._plain_first = True
        self._short: list[Lane] = []  # idle lanes whose next block waits for a slot of the device
        self._checks = LaneChecks(plan)
        self._placer = Placer(plan, pool, calls, self._checks)
        self.executions = Executions(policy, plan, promises, calls, self._placer, outbox)

    def handlers(self) -> dict[type[Event], Callable[..., None]]:
        return {EstimatesRestored: self._estimates_restored, **self.executions.handlers()}

    def _estimates_restored(self, event: EstimatesRestored) -> None:
        """Take over what was learned before a restart. A function that was removed meanwhile has no use for it."""
        flow = self.plan.flow(event.tenant, event.function)
        if flow is not None and self.policy.decides:
            outlook_of(flow, self.plan.now).restore(event.times, self.plan.now)

    # --- arrivals ---------------------------------------------------------------------------------------

    def arrived(self, invocation: Invocation, event: InvocationArrived, *, now: float) -> bool:
        """Decide about a call with an objective. Return False if it goes on as a plain call."""
        if event.deadline_s is not None:
            invocation.deadline = after(now, event.deadline_s)
        invocation.cost_limit = event.cost_limit
        if not self.policy.decides:
            return False
        plan, flow = self.plan, invocation.flow
        due = None if invocation.deadline is None else invocation.deadline - self.policy.margin_s
        invocation.objective = Objective(due, event.cost_limit, event.late, event.prefer)
        ask = Ask(invocation, flow, now, due, event.cost_limit, event.prefer)
        plan.asked(ask)
        outlook = outlook_of(flow, now)
        if outlook.probe not in self._calls.open:
            outlook.probe = None  # it was cancelled before it ran
        decision = self.policy.arrived(ask, plan, flow.domain.view)
        if isinstance(decision, Refused):
            self._placer.start_ahead(invocation, now)
            self._outbox.append(Reject(invocation.id, decision.reason, decision.refusal))
            return True
        placement = decision.placement if isinstance(decision, Probe) else None
        if isinstance(decision, Probe):
            outlook.probe = invocation.id
        if decision is None or (isinstance(decision, Probe) and placement is None):
            invocation.objective = None
            return False
        self._calls.open[invocation.id] = invocation
        flow.promised[invocation.id] = invocation
        flow.expiry = None
        if isinstance(decision, Promised):
            self._promise(invocation, decision, now)
        elif placement is not None:
            invocation.objective = Objective(None, None, event.late, event.prefer)
            self._placer.put(placement, invocation, now)
        else:
            self.waiting[invocation.id] = None
            for lane in plan.lanes(flow, now):
                plan.touch((lane,))
        return True

    def _promise(self, invocation: Invocation, decision: Promised, now: float) -> None:
        placement, objective = decision.placement, invocation.objective
        self._placer.put(placement, invocation, now)
        lane = cast(Lane, placement.lane)
        if objective is not None:
            objective.promised = True
            objective.cost = placement.cost
        self.plan.reserve(invocation, placement.length_s / placement.size, now)
        kinds = (lane.device.spec.kind,)
        self._outbox.append(
            Promise(invocation.id, invocation.deadline, placement.ends, placement.cost, kinds, decision.reason)
        )

    # --- every step -------------------------------------------------------------------------------------

    def step(self, now: float) -> None:
        """Look at lanes that are overdue, let blocks start, and let the policy choose waiting calls."""
        plan = self.plan
        short, self._short = self._short, []
        plan.touch(tuple(short))
        plan.kept_out.look(now)
        for lane in self._checks.due(now):
            self._check(lane, now)
            plan.touch((lane,))
        self._drop_given_up(now)
        self.executions.release_broken(now)
        self._settle_changed(now)
        if not self.waiting:
            plan.close_unused(now)

    def _settle_changed(self, now: float) -> None:
        plan = self.plan
        while plan.changed:
            lanes = list(plan.changed.values())
            plan.changed.clear()
            for lane in lanes:
                self._settle(lane, now)
            self.executions.release_broken(now)

    def wake_at(self, now: float) -> float:
        """Return when a lane must be looked at, or the policy asked, even if nothing happens."""
        wake = self._checks.next_at()
        own = self.policy.wake_at() if self.waiting else None
        return wake if own is None or own <= now else min(own, wake)

    def _settle(self, lane: Lane, now: float) -> None:
        """Start the next block of a lane, if it can start."""
        if lane.orphaned:
            self._replace_orphans(lane, now)
        if lane.occupant is None and lane.device.slots:
            block = to_run_first(lane, now) if lane.blocks else steal(lane)
            if block is not None and lane not in block.lanes:
                block = self._move_to(block, lane, now)
            if block is not None and can_start(block):
                if self._plain_first and self._is_left_to_plain(lane, block, now):
                    self._left_to_plain.append(lane)
                else:
                    self._start(block, now)
            elif block is not None and not has_slot(block):
                self._short.append(lane)
            elif not lane.blocks and self.waiting:
                self._choose_waiting(lane, now)
        self._checks.watch((lane,), now)

    def _is_left_to_plain(self, lane: Lane, block: Block, now: float) -> bool:
        """Return whether plain calls may have an idle lane before a promised block, because they had too little."""
        objective = block.members[0].objective
        if objective is None or not objective.promised:
            return False
        if now < lane.plan.kind.plain_at or lane.latest_start <= now:
            return False
        return self.plan.plain_waits(lane.device.spec.kind)

    def step_again(self, now: float) -> None:
        """Start the blocks of lanes that were left to plain calls, which have not taken them."""
        if not self._left_to_plain:
            return
        lanes, self._left_to_plain = self._left_to_plain, []
        self.plan.touch(tuple(lanes))
        self._plain_first = False
        self._settle_changed(now)
        self._plain_first = True

    def _start(self, block: Block, now: float) -> None:
        """Let a block begin, with the members that it has."""
        plan, sandbox, flow = self.plan, block.sandbox, block.flow
        assert sandbox is not None  # noqa: S101 - `can_start` has looked at it
        fill(plan, block, now)
        size = len(block.members)
        seconds = plan.bound_s(flow, sandbox.device, size) or block.length_s
        block.lanes[0].plan.run(block, sandbox, min(seconds, block.length_s), now)
        for member in block.members:
            del flow.promised[member.id]
        reason = f"promised; {size} of {block.size} planned calls" if block.size > 1 else "promised"
        self._dispatcher.run_block(list(block.members), sandbox, reason, now=now)
        plan.unpin_unused(block)
        self._checks.watch(block.lanes, now)

    # --- sandboxes and devices --------------------------------------------------------------------------

    def sandbox_ready(self, sandbox: Sandbox, *, cold: bool, now: float) -> None:
        """Learn how long a start took, and look at the lane that has waited for it."""
        flow, kind = sandbox.flow, sandbox.device.spec.kind
        if flow.outlook is not None and sandbox.began is not None:
            flow.outlook.record_start(kind, now - sandbox.began, cold=cold, now=now)
        if sandbox.lane is not None:
            self.plan.touch((sandbox.lane,))

    def run_finished(self, sandbox: Sandbox, run_s: float) -> None:
        """Tell the policy how long a run took."""
        size = 1 if sandbox.batch is None else sandbox.batch.began_with
        self.policy.finished(sandbox.flow, sandbox.device, size, run_s)
        now, kind = self.plan.now, sandbox.device.spec.kind
        for member in sandbox.in_flight:
            if member.objective is not None and member.objective.kind:
                late = member.deadline is not None and now > member.deadline + TOLERANCE_S
                self.policy.settled(member, member.flow, kind, cost_of(member, now), late=late)

    def flow_closed(self, flow: Flow) -> None:
        """Let the policy forget a flow, and break the promises of executions that need it."""
        self.executions.flow_closed(flow)
        self.policy.closed(flow)

    def devices_changed(self, now: float) -> None:
        """Move the blocks of devices that get no more work, or break their promises."""
        plan = self.plan
        plan.devices_changed()
        for found in list(plan.devices.values()):
            if found.device.slots:
                continue
            for block in found.blocks():
                self._replace(block, Blame.LOST, f"device {found.device.spec.name} gets no more work", now)
            if found.device.spec.name not in found.device.node.devices:
                plan.forget(found)

    def _replace_orphans(self, lane: Lane, now: float) -> None:
        lane.orphaned = False
        for block in list(lane.blocks):
            sandbox = block.sandbox
            if block in lane.blocks and (sandbox is None or sandbox.state is SandboxState.GONE):
                retired = None if sandbox is None else sandbox.retired
                blame = Blame.LOST if retired is None else Blame.PLATFORM
                self._replace(block, blame, retired or "its sandbox was lost", now)

    # --- overruns ---------------------------------------------------------------------------------------

    def _check(self, lane: Lane, now: float) -> None:
        """Break promises whose time is over, and make room for the blocks that no longer fit."""
        running = None if lane.occupant is None else self.plan.running.get(lane.occupant.id)
        if running is not None and running.lanes[0] is lane:
            self._break_late_members(running, now)
        if lane.plan.refresh((lane,), now) is not None:
            self.plan.shrink(lane, now)
        moved: dict[str, None] = {}  # calls that have got another place, which they do not get twice
        while (late := lane.plan.refresh((lane,), now)) is not None:
            block, blame = victim_of(lane if lane in late.lanes else late.lanes[0], late, now)
            few = late_members(late, block, self.plan.grace_s)
            if few:
                self._break_members(late, few, blame, now)
                continue
            again = any(member.id in moved for member in block.members)
            moved |= dict.fromkeys(member.id for member in block.members)
            self._replace(block, blame, LONGER, now, moves=not again)

    def _break_members(self, block: Block, members: list[Invocation], blame: Blame, now: float) -> None:
        """Break the promises of some members of a block, so that the others are in time."""
        block.blame = blame
        for member in members:
            self.plan.withdraw(member)
            self.break_promise(member, blame, LONGER, now)
        self.plan.shrink(block.lanes[0], now)

    def _break_late_members(self, block: Block, now: float) -> None:
        for member in list(block.members):
            objective = member.objective
            if objective is None or member.id not in self._calls.open or not objective.promised:
                continue  # one that was cancelled has left its batch
            if member.deadline is None or member.deadline + TOLERANCE_S >= now:
                continue
            own = now - block.began > objective.bound_s
            blame = Blame.OWN_RUN if own else block.blame or Blame.PLATFORM
            self.promises.broken_by(member, blame, "it did not end in time")
            if objective.late is Late.DROP and member.sandbox is not None:
                self._calls.cancel(member, member.sandbox, "its deadline has passed", now=now)

    def _replace(self, block: Block, blame: Blame, reason: str, now: float, *, moves: bool = True) -> None:
        """Move a block to another place where all its members are in time, or break its promises."""
        self.plan.drop(block)
        block.blame = blame
        first = min(block.members, key=lambda member: (_due(member), member.number))
        placement = self._other_place(block, first, now) if moves else None
        if placement is None:
            for member in list(block.members):
                self.break_promise(member, blame, reason, now)
            admit(block.flow)  # its sandbox may have kept others back
            return
        self._placer.put_all(placement, block.members, now).blame = blame

    def _other_place(self, block: Block, first: Invocation, now: float) -> PlannedPlace | None:
        ask = Ask(first, block.flow, now, None, None, ready=block.inputs_at(now))
        size = max(1, len(block.members))
        found = [
            placement
            for lane in self.plan.lanes(block.flow, now)
            if (placement := self.plan.place(ask, lane, size, block.limit)) is not None
            and all(_affords(member, placement.cost) for member in block.members)
        ]
        return min(found, key=lambda placement: (placement.cost, placement.ends), default=None)

    def _move_to(self, block: Block, lane: Lane, now: float) -> Block | None:
        """Move a block to a lane that is idle, where it starts earlier."""
        ask = Ask(block.members[0], block.flow, now, None, None)
        self.plan.drop(block)
        placement = self.plan.place(ask, lane, block.size, block.limit)
        if placement is None or placement.ready > now:
            placement = self.plan.place(ask, block.lanes[0], block.size, block.limit) or placement
        if placement is None:
            for member in list(block.members):
                self.break_promise(member, Blame.PLATFORM, "its place in the plan was lost", now)
            return None
        made = self._placer.put_all(placement, block.members, now)
        made.blame = block.blame
        return made if lane in made.lanes else None

    def break_promise(self, invocation: Invocation, blame: Blame, reason: str, now: float) -> None:
        """Break the promise of a call that has not started. It goes on as a plain call, or ends."""
        objective, flow = invocation.objective, invocation.flow
        if objective is None:
            return
        self.plan.refund(invocation)
        objective.block = None
        if objective.stage is not None and blame is Blame.OTHER_RUN and objective.stage.execution.overruns(now):
            blame = Blame.OWN_RUN
        self.promises.broken_by(invocation, blame, reason)
        if objective.stage is not None:
            return  # its execution is released
        if objective.late is Late.DROP:
            self._calls.withdraw(invocation, now=now)
            self._outbox.append(Fail(invocation.id, f"its promise was broken: {reason}"))
            self._calls.settle(flow, now=now)
        else:
            del flow.promised[invocation.id]
            queue_in_order(flow, invocation)

    # --- calls that wait without a promise --------------------------------------------------------------

    def _drop_given_up(self, now: float) -> None:
        for invocation in self.plan.withdrawn:
            if invocation.id in self.waiting:
                del self.waiting[invocation.id]
                self.policy.withdrawn(invocation)
        self.plan.withdrawn.clear()
        for call in self.policy.given_up(now) if self.waiting else ():
            invocation = cast(Invocation, call)
            del self.waiting[invocation.id]
            del self._calls.open[invocation.id], invocation.flow.promised[invocation.id]
            refusal = Refusal(RefusalCause.DEADLINE)
            self._outbox.append(Reject(invocation.id, "it can no longer meet its limits", refusal))
            self._calls.settle(invocation.flow, now=now)

    def _choose_waiting(self, lane: Lane, now: float) -> None:
        """Let the policy choose waiting calls for an idle lane."""
        choice = self.policy.idle(lane, self.plan, now)
        if choice is None:
            return
        calls = [cast(Invocation, call) for call in choice.calls]
        flow = calls[0].flow
        for call in calls:
            del self.waiting[call.id]
        placement = self.plan.place(Ask(calls[0], flow, now, None, None), lane, len(calls), inf)
        if placement is None:
            for call in calls:
                self.break_promise(call, Blame.PLATFORM, "no sandbox could start", now)
            return
        self._placer.put_all(placement, calls, now)


def _due(invocation: Invocation) -> float:
    return inf if invocation.objective is None else invocation.objective.due


def _affords(invocation: Invocation, cost: float) -> bool:
    return invocation.cost_limit is None or cost <= invocation.cost_limit
