"""Flows that could not be placed, each with the condition for the next attempt.

Most of them wait for a slot on the one device that has their memory. Trying all of them whenever any run ends would
cost more than all the attempts that succeed.
"""

from collections.abc import Iterable, Sequence
from math import inf

from aliquot.core.view import DeviceView, FlowView, View
from aliquot.policies.queueing.parts.flow_heap import FlowHeap


class BlockedFlows:
    """The blocked flows, found by device and by time."""

    def __init__(self) -> None:
        self.flows: dict[int, tuple[FlowView, Sequence[DeviceView]]] = {}
        self._anywhere: dict[int, FlowView] = {}  # those that wait for something to be freed on any device
        self._by_device: dict[int, dict[int, FlowView]] = {}
        self._until: FlowHeap[float] = FlowHeap()

    def __contains__(self, flow: FlowView) -> bool:
        return flow.index in self.flows

    def add(self, flow: FlowView, devices: Sequence[DeviceView] | None, until: float) -> None:
        """Block the flow until something is freed on one of these devices, or on any if None, or that time has come."""
        self.flows[flow.index] = (flow, devices or ())
        if devices is None:
            self._anywhere[flow.index] = flow
        for device in devices or ():
            self._by_device.setdefault(device.index, {})[flow.index] = flow
        self._until.set(flow, until)

    def discard(self, flow: FlowView) -> None:
        known = self.flows.pop(flow.index, None)
        if known is None:
            return
        self._until.discard(flow)
        self._anywhere.pop(flow.index, None)
        for device in known[1]:
            waiting = self._by_device[device.index]
            del waiting[flow.index]
            if not waiting:
                del self._by_device[device.index]

    def ready(self, view: View) -> Iterable[FlowView]:
        """Return the flows worth another attempt. The caller discards them, and adds them again if it fails."""
        if not self.flows:
            return ()
        ready = self._until.take(view.now)
        if view.freed:
            ready += self._anywhere.values()
            for index in view.freed if self._by_device else ():
                ready += self._by_device.get(index, {}).values()
        return ready

    def next_at(self) -> float | None:
        """Return when the first of them is worth another attempt if nothing happens, or None."""
        if not self.flows:
            return None
        first = self._until.first_entry()
        return None if first is None or first[0] == inf else first[0]

    def take_all(self) -> list[FlowView]:
        """Remove and return all flows, because everything has changed."""
        flows = [flow for flow, _ in self.flows.values()]
        for flow in flows:
            self.discard(flow)
        return flows
