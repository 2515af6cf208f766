"""All calls that wait run together, up to the function's limit."""

from aliquot.core.batch_times import BatchTimes
from aliquot.core.interfaces import Batching
from aliquot.core.view import DeviceView, FlowView


class Greedy(Batching):
    def size(self, flow: FlowView, times: BatchTimes, device: DeviceView, *, now: float) -> int:
        return flow.queued
