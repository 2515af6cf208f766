"""Runs and starts that take longer than their bounds: when to look, and which block has to go.

A run past its bound is believed to take as long again as it is over. The blocks behind it that no longer fit move to
another lane, or their promises are broken: first those of the flow whose run is late, then those of its tenant, then
the one that is due last. No call that is kept is displaced.
"""

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from aliquot.core.admission.blocks import TOLERANCE_S, Block
from aliquot.core.admission.lanes import Lane
from aliquot.core.admission.records import Blame
from aliquot.core.lifecycle import WARM

if TYPE_CHECKING:
    from aliquot.core.admission.plan import Plan
    from aliquot.core.records import Invocation

CHECK_S = 1e-6  # after the moment at which something becomes late


class LaneChecks:
    """The times at which lanes are looked at even if nothing happens."""

    def __init__(self, plan: "Plan") -> None:
        self._plan = plan
        self._heap: list[tuple[float, int, int]] = []  # time, device, lane

    def watch(self, lanes: tuple[Lane, ...], now: float) -> None:
        """Look at the lanes again when a run or a start has taken so long that a block becomes late."""
        for lane in lanes:
            running = None if lane.occupant is None else self._plan.running.get(lane.occupant.id)
            at = next_check(lane, running, now)
            if at < lane.check_at:
                lane.check_at = at
                heappush(self._heap, (at, lane.device.index, lane.number))

    def due(self, now: float) -> list[Lane]:
        """Take out the lanes whose time has come."""
        lanes = []
        while self._heap and self._heap[0][0] <= now:
            _, device, number = heappop(self._heap)
            found = self._plan.devices.get(device)
            if found is not None and number < len(found.lanes):
                found.lanes[number].check_at = inf
                lanes.append(found.lanes[number])
        return lanes

    def next_at(self) -> float:
        """Return the time of the next one."""
        return self._heap[0][0] if self._heap else inf


def next_check(lane: Lane, running: Block | None, now: float) -> float:
    """Return when a block of the lane becomes late if nothing happens, or a running call misses its due time."""
    at = inf
    if running is not None:
        dues = [member.deadline for member in running.members if member.objective and member.objective.promised]
        at = min((due for due in dues if due is not None and due >= now), default=inf)
    if lane.latest_start < inf and not lane.blocks and running is not None:
        at = min(at, max((lane.busy_until + max(lane.busy_until, lane.latest_start)) / 2, now))
    if lane.blocks and lane.latest_start < inf:
        expected = lane.busy_until if lane.occupant is not None else now
        first = lane.blocks[0]
        sandbox = first.sandbox
        if sandbox is not None and sandbox.state is not WARM and sandbox.invocation is None:
            expected = max(expected, sandbox.ready_at)
        if not first.has_inputs:
            expected = max(expected, first.inputs_at(now))
        latest = lane.latest_start + lane.plan.plan.grace_s
        late = latest if expected == inf else (expected + max(expected, latest)) / 2
        at = min(at, max(late, now))
    return at + CHECK_S if at < inf else inf


def victim_of(lane: Lane, late: Block, now: float) -> tuple[Block, Blame]:
    """Return the block that has to go so that a late one fits, and the blame."""
    occupant = lane.occupant
    overran = occupant is not None and now > lane.busy_until
    blame = Blame.OTHER_RUN if overran else Blame.START
    if not overran and late.sandbox is not None and late.sandbox.state is WARM:
        blame = Blame.OTHER_RUN
    until = lane.blocks.index(late) + 1 if late in lane.blocks else len(lane.blocks)
    before = lane.blocks[:until] or [late]
    culprit = occupant.flow if overran and occupant is not None else (before[0].flow if blame is Blame.START else None)
    if culprit is not None:
        for same in (
            [block for block in before if block.flow is culprit],
            [block for block in before if block.flow.key.tenant == culprit.key.tenant],
        ):
            if same:
                return max(same, key=lambda block: (block.due, block.number)), blame
    return max(before, key=lambda block: (block.due, block.number)), blame


def late_members(late: Block, victim: Block, grace_s: float) -> list["Invocation"]:
    """Return the members of a late block that have to go, if they are fewer than those of the victim.

    They are of the tenant that would lose the victim. A stage does not go alone.
    """
    if late.staged or late.flow.key.tenant != victim.flow.key.tenant:
        return []
    until = late.ends - grace_s - TOLERANCE_S
    found = [each for each in late.members if each.objective is not None and each.objective.due < until]
    return found if len(found) < min(len(late.members), len(victim.members)) else []
