"""Flows that could not be placed, each with the condition for the next attempt.

Most of them wait for a slot on the one device that has their memory. Trying all of them whenever any run ends would
cost more than all the attempts that succeed.
"""

from collections.abc import Sequence

from aliquot.core.view import DeviceView, FlowView
from aliquot.policies.queueing.parts.flow_heap import FlowHeap


class DeviceWaiters:
    """The flows that wait for a slot or memory on one device."""

    __slots__ = ("device", "flows", "releases")

    def __init__(self, device: DeviceView) -> None:
        self.device = device
        self.releases = device.releases  # the device's count when the first of them began to wait
        self.flows: dict[int, FlowView] = {}


class BlockedFlows:
    """The blocked flows, found by device and by time."""

    def __init__(self) -> None:
        self._flows: dict[int, tuple[FlowView, Sequence[DeviceView]]] = {}
        self._waiters: dict[int, DeviceWaiters] = {}  # by device
        self._until: FlowHeap[float] = FlowHeap()

    def __contains__(self, flow: FlowView) -> bool:
        return flow.index in self._flows

    def add(self, flow: FlowView, devices: Sequence[DeviceView], until: float) -> None:
        """Block the flow until something is freed on one of these devices, or that time has come."""
        self._flows[flow.index] = (flow, devices)
        for device in devices:
            waiters = self._waiters.get(device.index)
            if waiters is None:
                waiters = self._waiters[device.index] = DeviceWaiters(device)
            waiters.flows[flow.index] = flow
        self._until.set(flow, until)

    def discard(self, flow: FlowView) -> None:
        known = self._flows.pop(flow.index, None)
        if known is None:
            return
        self._until.discard(flow)
        for device in known[1]:
            waiters = self._waiters[device.index]
            del waiters.flows[flow.index]
            if not waiters.flows:
                del self._waiters[device.index]

    def ready(self, now: float) -> Sequence[FlowView]:
        """Return the flows worth another attempt. The caller discards them, and adds them again if it fails."""
        if not self._flows:
            return ()
        ready = self._until.take(now)
        for waiters in self._waiters.values():
            if waiters.releases != waiters.device.releases:
                ready += waiters.flows.values()
        return ready

    def take_all(self) -> list[FlowView]:
        """Remove and return all flows, because everything has changed."""
        flows = [flow for flow, _ in self._flows.values()]
        for flow in flows:
            self.discard(flow)
        return flows
