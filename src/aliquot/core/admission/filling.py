"""Fill a block that is about to start with calls of its flow that are planned later.

Blocks without slack cannot grow when a call arrives, and a lane that is full of them would run small batches for ever.
When a block starts, runs before it have often ended early, so there is slack: the block takes calls of later blocks
along, as long as none of the blocks behind it becomes late. This shortens the plan, and the next block has more slack.
"""

from typing import TYPE_CHECKING

from aliquot.core.admission.blocks import TOLERANCE_S, Block

if TYPE_CHECKING:
    from aliquot.core.admission.plan import Plan

MAX_LOOKED_AT = 64  # blocks behind it in its lane, and as many in each other lane


def fill(plan: "Plan", block: Block, now: float) -> None:
    """Take members of later blocks along, in the order of their due times."""
    flow, lane = block.flow, block.lanes[0]
    limit = flow.spec.batch if flow.batches is None else flow.batches.limit
    if limit == 1:
        return
    ends_by = block.limit
    for other in _later_blocks(plan, block):
        size = len(block.members) + len(other.members)
        length_s = plan.bound_s(flow, lane.device, size) if size <= limit else None
        if length_s is None:
            continue
        ends_by = min(ends_by, other.limit)
        if now + length_s > ends_by + TOLERANCE_S or not lane.plan.none_late_behind(block, other, now + length_s, now):
            return
        if not _affordable(plan, block, other, length_s):
            return
        _merge(plan, block, other, length_s)


def _later_blocks(plan: "Plan", block: Block) -> list[Block]:
    own = block.lanes[0]
    kind = own.device.spec.kind
    found = {
        other.number: other
        for device in plan.devices.values()
        if device.device.spec.kind == kind and (device is own.plan or not device.wide)
        for lane in device.lanes
        for other in lane.blocks[:MAX_LOOKED_AT]
        if other.flow is block.flow and other is not block and other.has_inputs
    }
    return sorted(found.values(), key=lambda other: (other.key, other.number))


def _affordable(plan: "Plan", block: Block, other: Block, length_s: float) -> bool:
    members = [*block.members, *other.members]
    cost = plan.cost(block.flow, block.lanes[0].device, length_s, len(members))
    return all(member.cost_limit is None or cost <= member.cost_limit for member in members)


def _merge(plan: "Plan", block: Block, other: Block, length_s: float) -> None:
    plan.drop(other)
    for member in other.members:
        block.members.append(member)
        if member.objective is not None:
            member.objective.block = block
            member.objective.bound_s = length_s
    block.recount()
    block.size, block.length_s = len(block.members), length_s
