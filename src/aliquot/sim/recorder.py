"""What a simulation keeps of each call: enough for every figure of the report, and nothing while it is over."""

from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from aliquot.core.clock import between
from aliquot.core.commands import Dispatch, Start
from aliquot.core.model import FlowKey
from aliquot.sim.arrivals import Arrival
from aliquot.sim.fairness import FairnessMeter


class Call:
    """A call that has not ended."""

    __slots__ = ("arrival", "dispatched", "key", "share", "started")

    def __init__(self, arrival: Arrival, key: FlowKey) -> None:
        self.arrival = arrival
        self.key = key
        self.dispatched: float = 0
        self.started: float = 0
        self.share = 0.0


class DispatchLine(NamedTuple):
    """One line of a schedule."""

    time_s: float
    device: str
    function: str
    start: str  # cold or warm: whether a sandbox had to be started
    reason: str
    tenant: str
    arrived_s: float


class FlowRecord:
    """What has ended, of one flow."""

    def __init__(self) -> None:
        self.latency_s = array("d")
        self.wait_s = array("d")
        self.starts = dict.fromkeys(Start, 0)
        self.rejected = self.failed = 0
        self.deadlines = self.deadlines_met = 0


class Recorder:
    def __init__(self, weights: dict[FlowKey, float], on_dispatch: Callable[[DispatchLine], None] | None) -> None:
        self.flows = {key: FlowRecord() for key in weights}
        self.fairness = FairnessMeter(weights)
        self.bytes_moved = 0
        self.busy_s = 0.0  # device time, by share
        self.first_arrival_s: float | None = None
        self.last_finish_s: float = 0
        self._on_dispatch = on_dispatch

    def arrived(self, call: Call, now: float) -> None:
        if self.first_arrival_s is None:
            self.first_arrival_s = now
        self.fairness.enqueued(call.key, now)

    def rejected(self, call: Call, now: float) -> None:
        self.flows[call.key].rejected += 1
        self.fairness.dequeued(call.key, now)

    def failed(self, call: Call) -> None:
        self.flows[call.key].failed += 1

    def dispatched(self, call: Call, command: Dispatch, now: float) -> None:
        call.dispatched = now
        record = self.flows[call.key]
        record.starts[command.start] += 1
        record.wait_s.append(between(call.arrival.time_s, now))
        self.fairness.dequeued(call.key, now)
        if self._on_dispatch is not None:
            warmth = "cold" if command.start is Start.COLD else "warm"
            arrival = call.arrival
            self._on_dispatch(
                DispatchLine(
                    now, command.device, arrival.function, warmth, command.reason, arrival.tenant, arrival.time_s
                )
            )

    def started(self, call: Call, share: float, now: float) -> None:
        call.started = now
        call.share = share
        self.fairness.rate_changed(call.key, share, now)

    def finished(self, call: Call, now: float) -> None:
        latency_s = between(call.arrival.time_s, now)
        record = self.flows[call.key]
        record.latency_s.append(latency_s)
        if call.arrival.deadline_s is not None:
            record.deadlines += 1
            record.deadlines_met += latency_s <= call.arrival.deadline_s
        self.busy_s += call.share * (now - call.started)
        self.last_finish_s = now
        self.fairness.rate_changed(call.key, -call.share, now)

    def all_latencies(self) -> Iterable[float]:
        return (value for record in self.flows.values() for value in record.latency_s)
