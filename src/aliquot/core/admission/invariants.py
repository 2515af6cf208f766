"""Check the plan: no lane, share or byte is promised twice, and every block is where its calls think it is."""

from collections.abc import Iterator

from aliquot.core.admission.lanes import DevicePlan, Lane
from aliquot.core.admission.plan import Plan
from aliquot.core.flow import Flow
from aliquot.core.lifecycle import SandboxState
from aliquot.core.pool import Pool


def violations(plan: Plan, pool: Pool, flows: "dict[tuple[str, str], Flow]") -> Iterator[str]:
    """Yield a text for each part of the plan that is wrong."""
    for found in plan.devices.values():
        if found.device.plan is not found:
            yield f"{found.device.spec.name} has another plan than the one listed"
        for lane in found.lanes:
            yield from _lane(found, lane)
        yield from _slots(found)
    for name, kind in plan.kinds.items():
        own = [found for found in plan.devices.values() if found.kind is kind]
        if kind.blocks != sum(len(found.blocks()) for found in own):
            yield f"kind {name} counts {kind.blocks} blocks"
    pinned = sorted(s.id for found in plan.devices.values() for lane in found.lanes for s in lane.sandboxes.values())
    if pinned != sorted(s.id for s in pool.sandboxes.values() if s.lane is not None):
        yield f"sandboxes {pinned} are pinned, others say they are"
    for flow in flows.values():
        yield from _promised(flow)


def _promised(flow: Flow) -> Iterator[str]:
    for invocation in flow.promised.values():
        objective = invocation.objective
        block = None if objective is None else objective.block
        if objective is None or (objective.promised and block is None):
            yield f"has no block: {invocation.describe()}"
        if block is not None and (invocation not in block.members or block not in block.lanes[0].blocks):
            yield f"is not in its block: {invocation.describe()}"


def _lane(found: DevicePlan, lane: Lane) -> Iterator[str]:
    name = f"lane {lane.number} of {found.device.spec.name}"
    keys = [block.key for block in lane.blocks]
    if keys != sorted(keys):
        yield f"{name} has blocks in the order {keys}"
    occupant = lane.occupant
    if occupant is not None and (occupant.invocation is None or lane not in occupant.occupies):
        yield f"{name} is taken by {occupant.describe()}, which does not run there"
    for block in lane.blocks:
        if not block.members or len(block.members) > block.size:
            yield f"{name} has a block with {len(block.members)} of {block.size} calls"
        sandbox = block.sandbox
        gone = sandbox is None or sandbox.state is SandboxState.GONE
        if gone != lane.orphaned and gone:
            yield f"{name} has a block of {block.flow.key} without a sandbox"
        if not gone and block.lanes[0].sandboxes.get(block.flow.index) is not sandbox:
            yield f"{name} has a block of {block.flow.key} whose sandbox is not pinned"


def _slots(found: DevicePlan) -> Iterator[str]:
    device = found.device
    running = [s.id for s in device.sandboxes.values() if s.invocation is not None]
    counted = [lane.occupant.id for lane in found.lanes if lane.occupant is not None] + list(found.outside_used)
    ended = [number for number in counted if number not in running]
    if ended:
        yield f"{device.spec.name} counts runs in {ended} that have ended"
    if device.slots and len(found.lanes) + found.outside != device.slots:
        yield f"{device.spec.name} has {len(found.lanes)} lanes and {found.outside} more of {device.slots} slots"
    if sum(found.outside_used.values()) > found.outside:
        yield f"{device.spec.name} counts {found.outside_used} in {found.outside} slots outside of lanes"
