"""Round robin, from the thesis: the k-th request goes to device k mod n, and later requests wait for it."""

from aliquot.core.fit import could_hold
from aliquot.core.interfaces import Choice, Params, RandomSource
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.arrival_order import InArrivalOrder
from aliquot.policies.queueing.parts.placement import on_device


class RoundRobin(InArrivalOrder):
    def __init__(self, params: Params, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._turn = 0

    def choose(self, view: View) -> Choice | None:
        flow = self.order.first()
        if flow is None:
            return None
        device = self._device(flow, view)
        place = on_device(view, flow, device)
        return Choice(flow, *place, f"{device.spec.name}'s turn") if place else None

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        self._turn = (view.devices.index(device) + 1) % len(view.devices)

    def devices_changed(self, view: View) -> None:
        self._turn %= len(view.devices) or 1

    def _device(self, flow: FlowView, view: View) -> DeviceView:
        """Return the device whose turn it is, skipping those that could never hold the function."""
        count = len(view.devices)
        turns = (view.devices[(self._turn + skip) % count] for skip in range(count))
        specs = [device.spec for device in view.devices]
        return next(device for device in turns if could_hold(flow.spec, device.spec, specs))
