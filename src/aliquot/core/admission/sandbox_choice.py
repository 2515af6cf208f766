"""Find the sandbox for a planned run: one that is pinned to its lane, idle, about to be idle, or new."""

from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from aliquot.core.admission.blocks import believed
from aliquot.core.admission.estimates import Outlook, plain_bound
from aliquot.core.admission.lanes import Lane
from aliquot.core.lifecycle import BUSY, HOST_WARM, WARM

if TYPE_CHECKING:
    from aliquot.core.device import Device
    from aliquot.core.flow import Flow
    from aliquot.core.records import Sandbox


class SandboxChoice(Struct, frozen=True, gc=False):
    """A sandbox, or a new one if that is None, and the time at which it is ready."""

    sandbox: "Sandbox | None"
    ready: float
    start_s: float = 0  # that starting or loading it takes


def choose_sandbox(flow: "Flow", lane: Lane, outlook: Outlook, now: float) -> SandboxChoice | None:
    """Return the sandbox that is ready first, or None if the flow cannot have one on this device now."""
    device = lane.device
    pinned = lane.sandboxes.get(flow.index)
    if pinned is not None:
        return SandboxChoice(pinned, _ready(pinned, lane, now))
    current = lane.occupant
    if current is not None and current.flow is flow and current.lane is None and _reusable(current):
        return SandboxChoice(current, now)  # it is free whenever the lane is
    found = _idle(flow, device, outlook, now)
    if found is not None and found.ready <= now:
        return found
    for sandbox in device.sandboxes.values():
        if sandbox.flow is flow and sandbox.lane is None and sandbox.invocation is not None and _reusable(sandbox):
            ready = _free_at(sandbox, now)
            if found is None or ready < found.ready:
                found = SandboxChoice(sandbox, ready)
    if can_have_new(flow, device, now):
        start_s = outlook.start_s(flow.spec, device.spec, now, cold=True)
        if found is None or now + start_s < found.ready:
            found = SandboxChoice(None, now + start_s, start_s)
    return found


def lacks_sandbox(flow: "Flow", lane: Lane) -> bool:
    """Return whether a lane is idle and the flow has no sandbox that could run there now or is about to start."""
    if lane.occupant is not None or lane.blocks or lane.sandboxes:
        return False
    idle = flow.idle_by_device.get(lane.device.index)
    return idle is None or not (idle.resident or idle.not_resident)


def _idle(flow: "Flow", device: "Device", outlook: Outlook, now: float) -> SandboxChoice | None:
    idle = flow.idle_by_device.get(device.index)
    if idle is None:
        return None
    if idle.resident:
        return SandboxChoice(next(reversed(idle.resident.values())), now)
    found: SandboxChoice | None = None
    for sandbox in reversed(idle.not_resident.values()):
        if sandbox.state is not HOST_WARM:
            choice = SandboxChoice(sandbox, believed(sandbox.ready_at, now))
        elif sandbox.bytes <= device.free_bytes + device.evictable_bytes:
            load_s = outlook.start_s(flow.spec, device.spec, now, cold=False)
            choice = SandboxChoice(sandbox, now + load_s, load_s)
        else:
            continue
        if found is None or choice.ready < found.ready:
            found = choice
    return found


def _ready(sandbox: "Sandbox", lane: Lane, now: float) -> float:
    if sandbox.state is WARM or (sandbox.state is BUSY and lane in sandbox.occupies):
        return now
    return _free_at(sandbox, now) if sandbox.invocation is not None else believed(sandbox.ready_at, now)


def _free_at(sandbox: "Sandbox", now: float) -> float:
    """Return when the run in another lane, or outside of lanes, is believed to end."""
    if sandbox.occupies:
        return max(believed(lane.busy_until, now) for lane in sandbox.occupies)
    size = 1 if sandbox.batch is None else sandbox.batch.size
    bound = plain_bound(sandbox.flow, sandbox.device, now, size)
    return inf if bound is None else now + bound


def _reusable(sandbox: "Sandbox") -> bool:
    return sandbox.retired is None and not sandbox.ahead and len(sandbox.devices) == 1


def can_have_new(flow: "Flow", device: "Device", now: float) -> bool:
    """Return whether a new sandbox can start now, if idle ones are evicted for it."""
    spec = flow.spec
    if spec.memory_bytes > device.free_bytes + device.evictable_bytes or device.device_class not in flow.classes:
        return False
    if spec.instances is not None and sum(s.retired is None for s in flow.sandboxes.values()) >= spec.instances:
        return False
    if device.pool_full and device.pool_order.victim(now=now) is None and not device.kept:
        return False
    return device.host.allows(flow)
