"""Every call runs alone."""

from aliquot.core.batch_times import BatchTimes
from aliquot.core.interfaces import Batching
from aliquot.core.view import DeviceView, FlowView


class NoBatches(Batching):
    def size(self, flow: FlowView, times: BatchTimes, device: DeviceView, *, now: float) -> int:
        return 1
