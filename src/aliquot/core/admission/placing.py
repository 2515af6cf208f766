"""Give planned calls their places: commit them to the plan, and pin, start or load the sandboxes that they count on."""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from aliquot.core.admission.blocks import Block
from aliquot.core.admission.estimates import outlook_of
from aliquot.core.admission.interfaces import PlannedPlace
from aliquot.core.admission.lanes import Lane
from aliquot.core.admission.overruns import LaneChecks
from aliquot.core.admission.pins import pin
from aliquot.core.admission.plan import Plan
from aliquot.core.admission.sandbox_choice import can_have_new, choose_sandbox, lacks_sandbox
from aliquot.core.calls import Calls
from aliquot.core.commands import Purpose
from aliquot.core.lifecycle import HOST_WARM
from aliquot.core.pool import Pool
from aliquot.core.records import Invocation, Sandbox


class Placer:
    """Puts calls into the plan, together with their sandboxes."""

    def __init__(self, plan: Plan, pool: Pool, calls: Calls, checks: LaneChecks) -> None:
        self.plan = plan
        self.checks = checks
        self._pool = pool
        self._calls = calls

    def put(self, placement: PlannedPlace, invocation: Invocation, now: float) -> Block:
        """Give the call its place in the plan, with a sandbox that is pinned for it."""
        lane, flow = cast(Lane, placement.lane), invocation.flow
        sandbox = lane.sandboxes.get(flow.index)
        if sandbox is None:
            sandbox = self.pin(lane, invocation, now)
            assert sandbox is not None  # noqa: S101 - the placement has just found one
        block = self.plan.commit(placement, invocation, sandbox, now)
        self.checks.watch(block.lanes, now)
        return block

    def put_all(self, placement: PlannedPlace, members: Sequence[Invocation], now: float) -> Block:
        """Give several calls one place in the plan."""
        first, *others = members
        block = self.put(placement, first, now)
        for member in others:
            self.put(replace(placement, block=block), member, now)
        return block

    def pin(self, lane: Lane, invocation: Invocation, now: float) -> Sandbox | None:
        """Pin a sandbox to the lane, and start or load it at once if it is not warm. Return None if none can start."""
        flow = invocation.flow
        choice = choose_sandbox(flow, lane, outlook_of(flow, now), now)
        if choice is None:
            return None
        sandbox = choice.sandbox
        if sandbox is None:
            reason = f"promised calls will run in it on {lane.device.spec.name}"
            sandbox = self._pool.start(invocation, (lane.device,), reason, Purpose.PLAN, now=now)
        pin(self._pool, lane, sandbox)
        sandbox.ready_at = choice.ready
        if sandbox.state is HOST_WARM:
            self._pool.load(sandbox, "promised calls will run in it", invocation.id, now=now)
        return sandbox

    def start_ahead(self, invocation: Invocation, now: float) -> None:
        """Start a sandbox for later calls, if calls are refused while a lane is idle because no sandbox is warm."""
        flow = invocation.flow
        devices = [lane.device for lane in self.plan.lanes(flow, now) if lacks_sandbox(flow, lane)]
        device = next((each for each in devices if can_have_new(flow, each, now)), None)
        outlook = outlook_of(flow, now)
        if device is None or not outlook.refused_cold(now):
            return
        reason = "calls were refused because none was warm"
        sandbox = self._pool.start(invocation, (device,), reason, Purpose.PLAN, now=now)
        sandbox.ready_at = now + outlook.start_s(flow.spec, device.spec, now, cold=True)
        self._pool.release(sandbox, now=now)
        self._calls.settle(flow, now=now)
