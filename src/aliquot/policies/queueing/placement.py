"""Where a chosen flow goes: the ways that several policies share. Each answers None when it fits nowhere now."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from aliquot.core.lifecycle import HOLDS_DEVICE_MEMORY
from aliquot.core.view import DeviceView, FlowView, SandboxView, View

Place: TypeAlias = tuple[DeviceView, SandboxView | None]


def on_device(view: View, flow: FlowView, device: DeviceView) -> Place | None:
    """There: an idle sandbox if there is one, else a new one."""
    sandbox = flow.idle_on(device)
    if sandbox is not None:
        return (device, sandbox) if view.can_use(sandbox) else None
    return (device, None) if view.can_start(flow, device) else None


def least_recent(view: View, flow: FlowView, devices: Iterable[DeviceView] | None = None) -> Place | None:
    """The device that has gone longest without a dispatch, never-used first, in index order; warm or not."""
    best: Place | None = None
    for device in view.devices if devices is None else devices:
        if best is None or device.last_dispatch < best[0].last_dispatch:
            best = on_device(view, flow, device) or best
    return best


def sticky(view: View, flow: FlowView, allowed: Callable[[DeviceView], bool] | None = None) -> Place | None:
    """Any idle sandbox of the flow, on its own device, resident ones first; else the device with most free slots."""
    swapped_out: Place | None = None
    for device, sandbox in flow.idle_places():
        if not view.can_use(sandbox) or (allowed and not allowed(device)):
            continue
        if sandbox.state in HOLDS_DEVICE_MEMORY:
            return device, sandbox
        swapped_out = swapped_out or (device, sandbox)
    return swapped_out or _most_free_slots(view, flow, allowed)


def _most_free_slots(view: View, flow: FlowView, allowed: Callable[[DeviceView], bool] | None) -> Place | None:
    best: DeviceView | None = None
    most = 0
    for device in view.devices:
        free = device.slots - device.running
        if free > most and view.can_start(flow, device) and (allowed is None or allowed(device)):
            best, most = device, free
    return (best, None) if best is not None else None


def by_last_dispatch(devices: Sequence[DeviceView]) -> list[DeviceView]:
    """Those with a free slot, longest unused first."""
    free = [device for device in devices if device.running < device.slots]
    return sorted(free, key=lambda device: (device.last_dispatch, device.index))
