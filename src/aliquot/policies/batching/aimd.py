"""The size grows by one after each full batch that was worthwhile, and shrinks by a tenth after one that was not.

A batch was not worthwhile if a member ended after its deadline, or if each call took longer than in a smaller batch.
"""

from aliquot.core.batch_times import BatchTimes
from aliquot.core.interfaces import Batching, Params
from aliquot.core.view import DeviceView, FlowView


class AimdParams(Params, frozen=True):
    increase: float = 1  # calls added after a full batch that was worthwhile
    decrease: float = 0.9  # factor after a batch that was not


class Aimd(Batching):
    params_type = AimdParams

    def __init__(self, params: AimdParams) -> None:
        super().__init__(params)
        self._params = params
        self._sizes: dict[tuple[int, str], float] = {}  # by flow and kind of device

    def size(self, flow: FlowView, times: BatchTimes, device: DeviceView, *, now: float) -> int:
        return int(self._sizes.get((flow.index, device.spec.kind), 1))

    def ran(self, flow: FlowView, times: BatchTimes, kind: str, size: int, run_s: float, *, late: bool) -> None:
        key = (flow.index, kind)
        current = self._sizes.get(key, 1.0)
        smaller = [known_s / known for known, known_s in times.known(kind).items() if known < size]
        if late or (smaller and run_s / size > min(smaller)):
            self._sizes[key] = max(1.0, current * self._params.decrease)
        elif size >= int(current):
            self._sizes[key] = min(float(times.limit), current + self._params.increase)

    def forget(self, flow: FlowView) -> None:
        self._sizes = {key: size for key, size in self._sizes.items() if key[0] != flow.index}
