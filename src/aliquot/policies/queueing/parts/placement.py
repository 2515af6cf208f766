"""Where a chosen flow goes: the ways that several policies share. Each answers None when it fits nowhere now.

A flow that declares a share goes where the packing says, of the places that are otherwise as good: what these ways
prefer beyond that, free slots or the longest idle device, says nothing about slices.
"""

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
    if devices is None:
        devices = view.devices
    if flow.spec.share:
        return packed(view, flow, [place for device in devices if (place := on_device(view, flow, device))])
    best: Place | None = None
    for device in devices:
        if best is None or device.last_dispatch < best[0].last_dispatch:
            best = on_device(view, flow, device) or best
    return best


def sticky(view: View, flow: FlowView, allowed: Callable[[DeviceView], bool] | None = None) -> Place | None:
    """Any idle sandbox of the flow, on its own device, resident ones first; else the device with most free slots."""
    if flow.spec.share:
        return _packed_sticky(view, flow, allowed or (lambda _: True))
    swapped_out: Place | None = None
    for device, sandbox in flow.idle_places():
        if not view.can_use(sandbox) or (allowed and not allowed(device)):
            continue
        if sandbox.state in HOLDS_DEVICE_MEMORY:
            return device, sandbox
        swapped_out = swapped_out or (device, sandbox)
    return swapped_out or _most_free_slots(view, flow, allowed)


def packed(view: View, flow: FlowView, places: Sequence[Place]) -> Place | None:
    """Of these."""
    if len(places) < 2:  # noqa: PLR2004 - there is nothing to choose
        return places[0] if places else None
    chosen = view.packing.choose(flow, [device for device, _ in places])
    return next(place for place in places if place[0] is chosen)


def _packed_sticky(view: View, flow: FlowView, allowed: Callable[[DeviceView], bool]) -> Place | None:
    idle = [(device, sandbox) for device, sandbox in flow.idle_places() if allowed(device) and view.can_use(sandbox)]
    resident = [place for place in idle if place[1].state in HOLDS_DEVICE_MEMORY]
    fresh: list[Place] = []
    if not idle:
        fresh = [(device, None) for device in view.devices if allowed(device) and view.can_start(flow, device)]
    return packed(view, flow, resident or idle or fresh)


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
