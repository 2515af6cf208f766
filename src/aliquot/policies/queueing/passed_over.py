"""Flows that were looked at in vain, each with what must happen before another look is worth it.

Most of them wait for a slot on the one device that has their memory: looking at them whenever something ends anywhere
would cost more than all the looks that lead to a dispatch.
"""

from collections.abc import Sequence

from aliquot.core.view import DeviceView, FlowView, View
from aliquot.policies.queueing.flow_heap import FlowHeap


class PassedOver:
    def __init__(self) -> None:
        self._all: dict[int, tuple[FlowView, Sequence[DeviceView]]] = {}  # with the devices on which room would help
        self._by_device: dict[int, dict[int, FlowView]] = {}
        self._until: FlowHeap[float] = FlowHeap()
        self._freed: list[int] = []  # of each device, as it was when last asked

    def __contains__(self, flow: FlowView) -> bool:
        return flow.index in self._all

    def add(self, flow: FlowView, devices: Sequence[DeviceView], until: float) -> None:
        """Not before room is given back on one of these devices, or that moment has come."""
        self._all[flow.index] = (flow, devices)
        for device in devices:
            self._by_device.setdefault(device.index, {})[flow.index] = flow
        self._until.set(flow, until)

    def discard(self, flow: FlowView) -> None:
        known = self._all.pop(flow.index, None)
        if known is not None:
            for device in known[1]:
                del self._by_device[device.index][flow.index]
            self._until.discard(flow)

    def ready(self, view: View) -> list[FlowView]:
        """Those worth another look. Whoever looks discards them, and adds them again if that was in vain too."""
        ready = self._until.take(view.now)
        freed = [device.freed for device in view.devices]
        if freed != self._freed:
            for device, before, after in zip(view.devices, self._freed, freed, strict=False):
                if before != after and device.index in self._by_device:
                    ready += self._by_device[device.index].values()
            self._freed = freed
        return ready

    def take_all(self) -> list[FlowView]:
        """Everything has changed: all are worth another look."""
        flows = [flow for flow, _ in self._all.values()]
        for flow in flows:
            self.discard(flow)
        self._freed = []  # the devices may be others
        return flows
