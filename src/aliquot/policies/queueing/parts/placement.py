"""Placement rules that several policies share. Each function returns None if the flow fits nowhere now.

For a flow that declares a share, the packing chooses among otherwise equal devices. Free slots and the time since the
last dispatch, which decide for other flows, say nothing about slices.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from aliquot.core.lifecycle import HOLDS_DEVICE_MEMORY
from aliquot.core.view import DeviceView, FlowView, SandboxView, View

Placement: TypeAlias = tuple[DeviceView, SandboxView | None]


def on_device(view: View, flow: FlowView, device: DeviceView) -> Placement | None:
    """Place the flow on that device, in an idle sandbox if it has one there, or else in a new one."""
    sandbox = flow.idle_on(device)
    if sandbox is not None:
        return (device, sandbox) if view.can_use(sandbox) else None
    return (device, None) if view.can_start(flow, device) else None


def least_recent(view: View, flow: FlowView, devices: Iterable[DeviceView] | None = None) -> Placement | None:
    """Place the flow on the device that has gone longest without a dispatch, whether it is warm there or not."""
    if devices is None:
        devices = _idle_and_new(view, flow)
    if flow.spec.share:
        return packed(view, flow, [place for device in devices if (place := on_device(view, flow, device))])
    best: Placement | None = None
    for device in devices:
        if best is None or device.last_dispatch < best[0].last_dispatch:
            best = on_device(view, flow, device) or best
    return best


def sticky(view: View, flow: FlowView, allowed: Callable[[DeviceView], bool] | None = None) -> Placement | None:
    """Place the flow in an idle sandbox, resident ones first, or else on the device with the most free slots."""
    if flow.spec.share:
        return _packed_sticky(view, flow, allowed or (lambda _: True))
    swapped_out: Placement | None = None
    places = view.idle_places(flow)
    if flow.spec.datasets:
        places = sorted(places, key=lambda place: view.data_s(flow, place[0]))
    for device, sandbox in places:
        if not view.can_use(sandbox) or (allowed and not allowed(device)):
            continue
        if sandbox.state in HOLDS_DEVICE_MEMORY:
            return device, sandbox
        swapped_out = swapped_out or (device, sandbox)
    return swapped_out or _most_free_slots(view, flow, allowed)


def warm_place(view: View, flow: FlowView) -> Placement | None:
    """Return the idle sandbox in device memory that `sticky` would choose for a flow without datasets, or None."""
    if flow.spec.share:
        places = view.idle_places(flow)
        usable = [place for place in places if place[1].state in HOLDS_DEVICE_MEMORY and view.can_use(place[1])]
        return packed(view, flow, usable)
    for place in view.idle_places(flow):
        if place[1].state in HOLDS_DEVICE_MEMORY and view.can_use(place[1]):
            return place
    return None


def packed(view: View, flow: FlowView, places: Sequence[Placement]) -> Placement | None:
    """Let the packing choose among the placements. Accelerators go before the CPU."""
    places = [place for place in places if place[0].sliced] or places
    if len(places) < 2:  # noqa: PLR2004 - there is no choice
        return places[0] if places else None
    chosen = view.packing.choose(flow, [device for device, _ in places])
    return next(place for place in places if place[0] is chosen)


def _packed_sticky(view: View, flow: FlowView, allowed: Callable[[DeviceView], bool]) -> Placement | None:
    idle = [
        (device, sandbox) for device, sandbox in view.idle_places(flow) if allowed(device) and view.can_use(sandbox)
    ]
    resident = [place for place in idle if place[1].state in HOLDS_DEVICE_MEMORY]
    fresh: list[Placement] = []
    if not idle:
        fresh = [(device, None) for device in view.candidates(flow) if allowed(device) and view.can_start(flow, device)]
    return packed(view, flow, resident or idle or fresh)


def _most_free_slots(view: View, flow: FlowView, allowed: Callable[[DeviceView], bool] | None) -> Placement | None:
    best: DeviceView | None = None
    max_free = 0
    for device in view.candidates(flow):
        free = device.slots - device.running
        better = free > max_free or (best is not None and free == max_free and _is_nearer(view, flow, device, best))
        if better and view.can_start(flow, device) and (allowed is None or allowed(device)):
            best, max_free = device, free
    return (best, None) if best is not None else None


def _is_nearer(view: View, flow: FlowView, device: DeviceView, other: DeviceView) -> bool:
    """Return whether the flow's data come to the device in less time than to the other."""
    return bool(flow.spec.datasets) and view.data_s(flow, device) < view.data_s(flow, other)


def by_last_dispatch(view: View) -> list[DeviceView]:
    """Return the devices with a free slot, or a few of many, the one unused for longest first."""
    return sorted(view.free_devices(), key=lambda device: (device.last_dispatch, device.index))


def _idle_and_new(view: View, flow: FlowView) -> Sequence[DeviceView]:
    """Return the devices to look at for an idle sandbox or a new one."""
    if not view.many:
        return view.devices
    idle = {device.index: device for device, _ in view.idle_places(flow)}
    idle.update((device.index, device) for device in view.candidates(flow))
    return [*idle.values()]
