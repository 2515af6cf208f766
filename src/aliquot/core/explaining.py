"""Explain why a call waits, from the state of the scheduler at that moment. Nothing here changes the state."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from aliquot.core.device import Device
from aliquot.core.flow import Flow
from aliquot.core.model import FlowKey
from aliquot.core.records import Invocation
from aliquot.core.run_memory import may_be_on, start_bytes
from aliquot.core.units import MIB

MAX_EXPLAINED_DEVICES = 4


class Cause(StrEnum):
    """The reason for which a call is not dispatched."""

    OWN_LIMIT = "own limit"  # its function has as many sandboxes as it may have
    OWN_QUEUE = "own queue"  # earlier calls of its function wait, too
    NO_DEVICE = "no device"  # its function fits on no device that is there
    FULL = "full"  # no device has a slot, compute and memory for it
    WARM_SOON = "warm soon"  # the policy waits for a sandbox of its function
    TURN = "turn"  # there is room, and other calls are due before it


class Holder(Struct, frozen=True, gc=False):
    """A function that occupies what the call needs."""

    tenant: str
    function: str
    runs: int


class WaitCause(Struct, frozen=True, gc=False):
    """The cause of a wait, with details that name no other tenant, and the functions that occupy the devices."""

    cause: Cause
    detail: str
    holders: tuple[Holder, ...] = ()


def explain_wait(invocation: Invocation) -> WaitCause:
    """Return why a call that is queued or held back has not been dispatched."""
    flow = invocation.flow
    if flow.misfit is not None:
        return WaitCause(Cause.NO_DEVICE, flow.misfit)
    if invocation.id in flow.held_back:
        limit = "" if flow.spec.instances is None else f" of at most {flow.spec.instances}"
        detail = f"{_calls(flow.in_flight)} of its function in flight{limit}"
        return WaitCause(Cause.OWN_LIMIT, detail, (Holder(*flow.key, flow.in_flight),))
    earlier = 0
    for other in flow.queue:
        if other == invocation.id:
            break
        earlier += 1
    if earlier:
        return WaitCause(Cause.OWN_QUEUE, f"{_calls(earlier)} of its function before it")
    return _explain_first(flow)


def _explain_first(flow: Flow) -> WaitCause:
    """Explain the wait of the first call in its queue."""
    view = flow.domain.view
    devices = [device for device in flow.domain.devices if view.could_hold(flow, device)]
    has_room = any(view.can_start(flow, device) for device in devices) or any(
        view.can_use(sandbox) for sandbox in flow.idle_sandboxes()
    )
    if not has_room:
        reasons = [f"{device.spec.name}: {_lacking(flow, device)}" for device in devices[:MAX_EXPLAINED_DEVICES]]
        if len(devices) > MAX_EXPLAINED_DEVICES:
            reasons.append(f"and {len(devices) - MAX_EXPLAINED_DEVICES} devices more")
        return WaitCause(Cause.FULL, "; ".join(reasons), tuple(_holders(devices)))
    others = flow.domain.queued - flow.queued
    if flow.in_flight and not others:
        return WaitCause(Cause.WARM_SOON, f"a sandbox of its function is free soon; {_calls(flow.in_flight)} in flight")
    due = f"{_calls(others)} of other functions in the queue" if others else "the policy holds its function back"
    return WaitCause(Cause.TURN, due, tuple(_holders(devices)))


def _lacking(flow: Flow, device: Device) -> str:
    view = flow.domain.view
    if device.running >= device.slots:
        return f"{device.running} of {device.slots} slots are taken"
    if not view.has_slot(flow, device):
        return f"a share of {device.shares_used:g} is taken, and it needs {flow.spec.share_on(device.spec):g}"
    available = device.free_bytes + device.evictable_bytes
    if not may_be_on(flow, device):
        return "its sandbox there is in use, and it may have one on each device"
    if (needed := start_bytes(flow.spec)) > available:
        return f"{available / MIB:.0f} MiB of memory can be freed, and it needs {needed / MIB:.0f}"
    if not device.host.allows(flow):
        return "the memory of its host is taken"
    return f"its function takes {flow.spec.device_count} devices, and too few are free"


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _holders(devices: list[Device]) -> Iterator[Holder]:
    """Return the functions with calls in flight on the devices, those with most first."""
    running: Counter[FlowKey] = Counter()
    for device in devices:
        for sandbox in device.sandboxes.values():
            if sandbox.in_flight:
                running[sandbox.flow.key] += len(sandbox.in_flight)
    for key, count in sorted(running.items(), key=lambda item: (-item[1], item[0])):
        yield Holder(*key, count)
