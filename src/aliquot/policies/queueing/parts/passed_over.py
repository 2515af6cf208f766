"""Flows that were looked at in vain, each with what must happen before another look is worth it.

Most of them wait for a slot on the one device that has their memory: looking at them whenever something ends anywhere
would cost more than all the looks that lead to a dispatch.
"""

from collections.abc import Sequence

from aliquot.core.view import DeviceView, FlowView
from aliquot.policies.queueing.parts.flow_heap import FlowHeap


class Room:
    """A device on which room would help these flows."""

    __slots__ = ("device", "flows", "freed")

    def __init__(self, device: DeviceView) -> None:
        self.device = device
        self.freed = device.freed
        self.flows: dict[int, FlowView] = {}


class PassedOver:
    def __init__(self) -> None:
        self._flows: dict[int, tuple[FlowView, Sequence[DeviceView]]] = {}
        self._rooms: dict[int, Room] = {}  # by device
        self._until: FlowHeap[float] = FlowHeap()

    def __contains__(self, flow: FlowView) -> bool:
        return flow.index in self._flows

    def add(self, flow: FlowView, devices: Sequence[DeviceView], until: float) -> None:
        """Not before room is given back on one of these devices, or that moment has come."""
        self._flows[flow.index] = (flow, devices)
        for device in devices:
            room = self._rooms.get(device.index)
            if room is None:
                room = self._rooms[device.index] = Room(device)
            room.flows[flow.index] = flow
        self._until.set(flow, until)

    def discard(self, flow: FlowView) -> None:
        known = self._flows.pop(flow.index, None)
        if known is None:
            return
        self._until.discard(flow)
        for device in known[1]:
            room = self._rooms[device.index]
            del room.flows[flow.index]
            if not room.flows:
                del self._rooms[device.index]

    def ready(self, now: float) -> Sequence[FlowView]:
        """Those worth another look. Whoever looks discards them, and adds them again if that was in vain too."""
        if not self._flows:
            return ()
        ready = self._until.take(now)
        for room in self._rooms.values():
            if room.freed != room.device.freed:
                ready += room.flows.values()
        return ready

    def take_all(self) -> list[FlowView]:
        """Everything has changed: all are worth another look."""
        flows = [flow for flow, _ in self._flows.values()]
        for flow in flows:
            self.discard(flow)
        return flows
