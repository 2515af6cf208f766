"""Best fit: choose the fullest device, so that free compute elsewhere stays in one piece for larger slices."""

from collections.abc import Sequence

from aliquot.core.interfaces import Packing
from aliquot.core.view import DeviceView, FlowView


class BestFit(Packing):
    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        return min(devices, key=lambda device: (-device.shares_used, device.free_bytes, device.index))
