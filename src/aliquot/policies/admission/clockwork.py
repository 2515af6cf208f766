"""Clockwork, as its paper describes it: nothing is promised, and each idle lane takes the most urgent batch that fits.

A call waits until a lane is idle. Then, of all flows with waiting calls, the one goes first whose batch must begin
first. The batch is the largest one that ends before the deadline of each of its calls. Sizes are powers of two. A run
is expected to take as long as the longest of the last ten, plus a margin. A call is refused when it can no longer end
in time alone, which is shortly before its deadline. A lane takes flows that are in the memory of its device first.
Only if none of them waits, it loads the flow with the most unserved work. Cost limits are not known to it.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import inf

from aliquot.core.admission.interfaces import Admission, Ask, BlockChoice, Decision, LaneView, PlanView, Refused, Waits
from aliquot.core.admission.records import Refusal, RefusalCause
from aliquot.core.clock import after
from aliquot.core.interfaces import Params, RandomSource
from aliquot.core.view import DeviceView, FlowView, InvocationView, View

TICK_S = 1e-6


class ClockworkParams(Params, frozen=True):
    window: int = 10  # last runs whose longest is expected
    margin_s: float = 0.005  # added to the time of each run


class WaitingCalls:
    """The calls of one flow that wait, first deadline first, and the run times that it has shown."""

    def __init__(self, flow: FlowView) -> None:
        self.flow = flow
        self.calls: list[InvocationView] = []
        self.runs: dict[tuple[str, int], deque[float]] = {}  # by kind of device and size of the batch
        self.alone_s = 0.0  # the shortest expected time of a single run


class Clockwork(Admission):
    params_type = ClockworkParams

    def __init__(self, params: ClockworkParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._params = params
        self._flows: dict[int, WaitingCalls] = {}

    def arrived(self, ask: Ask, plan: PlanView, view: View) -> Decision:
        if ask.due is None:
            return None
        devices = list({lane.device.index: lane.device for lane in plan.lanes(ask.flow, ask.now)}.values())
        if not devices:
            return Refused(Refusal(RefusalCause.NEVER), "no single device can run it now")
        waiting = self._flows.setdefault(ask.flow.index, WaitingCalls(ask.flow))
        waiting.flow = ask.flow
        insort(waiting.calls, ask.call, key=_due)
        waiting.alone_s = min(self._expected_s(waiting, device, 1, plan) for device in devices)
        return Waits("it is decided when a lane is idle")

    def idle(self, lane: LaneView, plan: PlanView, now: float) -> BlockChoice | None:
        device = lane.device
        usable = [each for each in self._flows.values() if each.calls and each.flow.spec.runs_on(device.spec)]
        resident = [each for each in usable if each.flow.resident_on(device)]
        first: tuple[float, int, slice] | None = None
        for waiting in resident:
            chosen = self._largest(waiting, device, plan, now)
            if chosen is not None:
                size = chosen.stop - chosen.start
                begins = _due(waiting.calls[chosen.start]) - self._expected_s(waiting, device, size, plan)
                if first is None or begins < first[0]:
                    first = begins, waiting.flow.index, chosen
        if first is not None:
            return self._choose(self._flows[first[1]], first[2], "its batch must begin first")
        others = [each for each in usable if each not in resident]
        most = max(others, key=lambda each: self._unserved_s(each, device, plan), default=None)
        if most is None:
            return None
        chosen = self._largest(most, device, plan, now + plan.start_s(most.flow, device))
        return None if chosen is None else self._choose(most, chosen, "it has the most unserved work")

    def given_up(self, now: float) -> Sequence[InvocationView]:
        late: list[InvocationView] = []
        for waiting in self._flows.values():
            count = 0
            while count < len(waiting.calls) and now + waiting.alone_s > _due(waiting.calls[count]):
                count += 1
            if count:
                late += waiting.calls[:count]
                del waiting.calls[:count]
        return late

    def finished(self, flow: FlowView, device: DeviceView, size: int, run_s: float) -> None:
        waiting = self._flows.setdefault(flow.index, WaitingCalls(flow))
        runs = waiting.runs.setdefault((device.spec.kind, size), deque(maxlen=self._params.window))
        runs.append(run_s)

    def withdrawn(self, call: InvocationView) -> None:
        for waiting in self._flows.values():
            waiting.calls = [each for each in waiting.calls if each is not call]

    def closed(self, flow: FlowView) -> None:
        self._flows.pop(flow.index, None)

    def wake_at(self) -> float | None:
        last = [_due(each.calls[0]) - each.alone_s for each in self._flows.values() if each.calls]
        return after(min(last), TICK_S) if last else None  # just after it could begin at the latest

    def _expected_s(self, waiting: WaitingCalls, device: DeviceView, size: int, plan: PlanView) -> float:
        runs = waiting.runs.get((device.spec.kind, size))
        expected_s = max(runs) if runs else plan.bound_s(waiting.flow, device, size)
        return inf if expected_s is None else expected_s + self._params.margin_s

    def _largest(self, waiting: WaitingCalls, device: DeviceView, plan: PlanView, now: float) -> slice | None:
        """Return the calls of the largest batch that ends in time, without those that are too urgent for it."""
        calls = waiting.calls
        size = 1
        while 2 * size <= min(len(calls), waiting.flow.spec.batch):
            size *= 2
        while size:
            ends = now + self._expected_s(waiting, device, size, plan)
            first = bisect_left(calls, ends, key=_due)
            if first + size <= len(calls):
                return slice(first, first + size)
            size //= 2
        return None

    def _unserved_s(self, waiting: WaitingCalls, device: DeviceView, plan: PlanView) -> float:
        return len(waiting.calls) * self._expected_s(waiting, device, 1, plan)

    def _choose(self, waiting: WaitingCalls, chosen: slice, reason: str) -> BlockChoice:
        calls = waiting.calls[chosen]
        del waiting.calls[chosen]
        return BlockChoice(waiting.flow, calls, reason)


def _due(call: InvocationView) -> float:
    return inf if call.deadline is None else call.deadline
