"""Runs and starts that take longer than their bounds: when to look, and which block has to go.

A run past its bound is believed to take as long again as it is over. The blocks behind it that no longer fit move to
another lane, or their promises are broken: first those of the flow whose run is late, then those of its tenant, then
the one that is due last. No call that is kept is displaced.
"""

from math import inf

from aliquot.core.admission.blocks import Block
from aliquot.core.admission.lanes import Lane
from aliquot.core.admission.records import Blame
from aliquot.core.lifecycle import WARM

CHECK_S = 1e-6  # after the moment at which something becomes late


def next_check(lane: Lane, running: Block | None, now: float) -> float:
    """Return when a block of the lane becomes late if nothing happens, or a running call misses its due time."""
    at = inf
    if running is not None:
        dues = [member.deadline for member in running.members if member.objective and member.objective.promised]
        at = min((due for due in dues if due is not None and due >= now), default=inf)
    if lane.blocks and lane.latest_start < inf:
        expected = lane.busy_until if lane.occupant is not None else now
        sandbox = lane.blocks[0].sandbox
        if sandbox is not None and sandbox.state is not WARM and sandbox.invocation is None:
            expected = max(expected, sandbox.ready_at)
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
