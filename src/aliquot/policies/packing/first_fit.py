"""First fit: choose the first device that has room, which fills the devices in order."""

from collections.abc import Sequence

from aliquot.core.interfaces import Packing
from aliquot.core.view import DeviceView, FlowView


class FirstFit(Packing):
    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        return devices[0]
