"""Decide which block of a lane starts next."""

from itertools import islice

from aliquot.core.admission.blocks import TOLERANCE_S, Block
from aliquot.core.admission.lanes import Lane
from aliquot.core.lifecycle import WARM
from aliquot.core.view import MAX_SHARES

MAX_LOOKED_AT = 8  # blocks behind one whose sandbox is not ready


def can_start(block: Block) -> bool:
    """Return whether all lanes of a block are free, its sandbox is ready, and the device has a slot and its share."""
    sandbox = block.sandbox
    if sandbox is None or sandbox.state is not WARM or sandbox.invocation is not None or not block.has_inputs:
        return False
    return all(lane.occupant is None for lane in block.lanes) and has_slot(block)


def has_slot(block: Block) -> bool:
    """Return whether the device has a slot and the share of a block. Calls handed ahead may have taken them."""
    device = block.lanes[0].device
    spec = device.spec
    if device.running >= device.slots + spec.extra_slots:
        return False
    needed = block.flow.spec.share_on(spec)
    return device.shares_used + needed <= MAX_SHARES + spec.extra_slots / spec.concurrency


def to_run_first(lane: Lane, now: float) -> Block | None:
    """Return the first block, or one behind it that is ready and makes none late."""
    first = lane.blocks[0]
    if len(first.lanes) > 1 or lane.plan.wide:
        return first if all(each.blocks[0] is first for each in first.lanes) else None
    sandbox = first.sandbox
    if sandbox is not None and sandbox.state is WARM and sandbox.invocation is None and first.has_inputs:
        return first
    for block in islice(lane.blocks, 1, MAX_LOOKED_AT + 1):
        if can_start(block) and _makes_none_late(lane, block, now):
            return block
    return None


def _makes_none_late(lane: Lane, before: Block, now: float) -> bool:
    end = now + before.length_s
    for block in lane.blocks:
        if block is before:
            continue
        end = max(end, block.ready_at(now)) + block.length_s
        if end > block.limit + TOLERANCE_S:
            return False
    return True


def steal(lane: Lane) -> Block | None:
    """Return the most urgent block that waits for another lane of the device and could start in this idle one."""
    found = None
    if lane.plan.wide:
        return None
    for other in lane.plan.lanes:
        if other.occupant is None or not other.blocks or other is lane:
            continue
        block = other.blocks[0]
        if (found is not None and block.key >= found.key) or not block.has_inputs:
            continue
        if _has_sandbox_for(lane, other, block):
            found = block
    return found


def _has_sandbox_for(lane: Lane, other: Lane, block: Block) -> bool:
    """Return whether a block of another lane would find a warm sandbox in this one."""
    pinned = lane.sandboxes.get(block.flow.index)
    if pinned is not None:
        return pinned.state is WARM and pinned.invocation is None
    if block.flow.resident_on(lane.device):
        return True
    own = block.sandbox
    if own is None or own.state is not WARM or own.invocation is not None:
        return False
    return not any(each is not block and each.sandbox is own for each in other.blocks)
