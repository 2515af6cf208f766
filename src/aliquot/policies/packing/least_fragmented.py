"""Least fragmentation: choose the device where the slice blocks the fewest others (Weng et al., ATC 2023).

The free compute of a device is a fragment for a function whose slice does not fit there, in compute or in memory. The
fragmentation of a device is the free compute that is a fragment for an average function, weighted by the number of
functions with such a slice. A new slice goes where it adds least to the fragmentation.
"""

from collections import Counter
from collections.abc import Sequence

from aliquot.core.interfaces import Packing, Params
from aliquot.core.view import SHARE_TOLERANCE, DeviceView, FlowView

STEPS = 20  # classes of shares per device; memory is rounded up to powers of two


class LeastFragmented(Packing):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._classes: Counter[tuple[float, int]] = Counter()
        self._class_of: dict[int, tuple[float, int]] = {}  # by flow

    def opened(self, flow: FlowView) -> None:
        self.closed(flow)
        if flow.spec.share:
            share = max(1, round(min(1, flow.spec.share) * STEPS)) / STEPS
            memory = 2 ** (flow.spec.memory_bytes - 1).bit_length() if flow.spec.memory_bytes else 0
            self._class_of[flow.index] = (share, memory)
            self._classes[self._class_of[flow.index]] += 1

    def closed(self, flow: FlowView) -> None:
        known = self._class_of.pop(flow.index, None)
        if known is not None:
            self._classes[known] -= 1
            if not self._classes[known]:
                del self._classes[known]

    def choose(self, flow: FlowView, devices: Sequence[DeviceView]) -> DeviceView:
        share, memory = min(1, flow.spec.share or 0), flow.spec.memory_bytes
        return min(devices, key=lambda device: (self._added(device, share, memory), -device.shares_used, device.index))

    def _added(self, device: DeviceView, share: float, memory: int) -> float:
        free, room = 1 - device.shares_used, device.free_bytes + device.evictable_bytes
        before = self._fragment(free, room)
        return self._fragment(free - share, room - memory) - before

    def _fragment(self, free: float, room: float) -> float:
        """Return the fragmentation times the number of functions, which is the same factor for all devices."""
        blocked = sum(
            count for (share, memory), count in self._classes.items() if share > free + SHARE_TOLERANCE or memory > room
        )
        return blocked * max(0.0, free)
