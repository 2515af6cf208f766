"""Round robin, from the thesis: the k-th request goes to device k mod n, and later requests wait for it."""

from bisect import bisect_left

from aliquot.core.device_index import MAX_CANDIDATES
from aliquot.core.interfaces import Choice, Params, RandomSource
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.arrival_order import InArrivalOrder
from aliquot.policies.queueing.parts.placement import on_device


class RoundRobin(InArrivalOrder):
    def __init__(self, params: Params, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._turn = self._at = 0

    def choose(self, view: View) -> Choice | None:
        flow = self.order.first()
        if flow is None:
            return None
        self._at = self._position(flow, view)
        device = view.devices[self._at]
        place = on_device(view, flow, device)
        return Choice(flow, *place, f"{device.spec.name}'s turn") if place else None

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        if self._at < len(view.devices) and view.devices[self._at] is device:
            self._turn = (self._at + 1) % len(view.devices)

    def devices_changed(self, view: View) -> None:
        self._turn %= len(view.devices) or 1
        self._at = 0

    def _position(self, flow: FlowView, view: View) -> int:
        """Return the position of the device whose turn it is, skipping those that could never hold the function."""
        count = len(view.devices)
        for skip in range(min(count, MAX_CANDIDATES)):
            at = (self._turn + skip) % count
            if view.could_hold(flow, view.devices[at]):
                return at
        found = (device for own in flow.classes for device in own.devices.values() if view.could_hold(flow, device))
        return bisect_left(view.devices, next(found).index, key=lambda device: device.index)
