"""All calls that wait run together, unless the first one would then miss its deadline.

Until the run times of three sizes are known, the size grows as under `aimd`.
"""

from aliquot.core.batch_times import BatchTimes, expected_time
from aliquot.core.view import DeviceView, FlowView
from aliquot.policies.batching.aimd import Aimd

MIN_SIZES = 3  # sizes with known run times


class Target(Aimd):
    def size(self, flow: FlowView, times: BatchTimes, device: DeviceView, *, now: float) -> int:
        known = times.known(device.spec.kind)
        if len(known) < min(MIN_SIZES, times.limit):
            return super().size(flow, times, device, now=now)
        size, deadline = min(flow.queued, times.limit), flow.head.deadline
        if deadline is None:
            return size
        while size > 1 and now + (expected_time(known, size) or 0) > deadline:
            size -= 1
        return size
