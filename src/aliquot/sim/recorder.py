"""What a simulation keeps of each call: enough for every figure of the report, and nothing while it is over."""

from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from aliquot.core.clock import between
from aliquot.core.commands import Dispatch, Start
from aliquot.core.model import FlowKey
from aliquot.core.places import place_text
from aliquot.sim.arrivals import Arrival
from aliquot.sim.fabric.figures import DataFigures
from aliquot.sim.fairness import MIN_DUE_S, FairnessMeter, FlowMeter, jain_index


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
    """What has ended, of one flow, and the meters that it runs by."""

    def __init__(self, fairness: FairnessMeter, meter: FlowMeter) -> None:
        self.fairness = fairness
        self.meter = meter
        self.latency_s = array("d")
        self.wait_s = array("d")
        self.starts = dict.fromkeys(Start, 0)
        self.rejected = 0
        self.deadlines = self.deadlines_met = 0


class SimulatedCall:
    """A call that has not ended."""

    __slots__ = ("accelerated", "arrival", "flow", "queued", "share", "started", "waits")

    def __init__(self, arrival: Arrival, flow: FlowRecord) -> None:
        self.arrival = arrival
        self.flow = flow
        self.queued = True
        self.waits = False  # longer than the moment of its arrival
        self.started: float = 0
        self.share = 0.0
        self.accelerated = False


class RunRecorder:
    def __init__(
        self,
        weights: dict[FlowKey, float],
        domains: dict[FlowKey, str],
        on_dispatch: Callable[[DispatchLine], None] | None,
    ) -> None:
        # Flows that never compete are not compared.
        meters = {
            domain: FairnessMeter({key: weight for key, weight in weights.items() if domains[key] == domain})
            for domain in dict.fromkeys(domains.values())
        }
        self.flows = {key: FlowRecord(meters[domains[key]], meters[domains[key]].flow(key)) for key in weights}
        # To be found by a plain pair, which is quicker to make.
        self._flows: dict[tuple[str, str], FlowRecord] = {(*key,): record for key, record in self.flows.items()}
        self.meters = list(meters.values())
        self._arrived: list[SimulatedCall] = []  # at this moment
        self.bytes_moved = 0
        self.data: DataFigures | None = None  # once it is over, where there are files
        self.busy_s = 0.0  # time of accelerators, by share
        self.first_arrival_s: float | None = None
        self.last_finish_s: float = 0
        self._on_dispatch = on_dispatch
        self.fairness_over_time: list[tuple[float, float]] = []  # moments, and Jain's index since the one before
        self._accounts: list[tuple[float, float]] = [(0.0, 0.0)] * len(weights)

    def arrived(self, arrival: Arrival, now: float) -> SimulatedCall:
        if self.first_arrival_s is None:
            self.first_arrival_s = now
        call = SimulatedCall(arrival, self._flows[arrival.tenant, arrival.function])
        self._arrived.append(call)
        return call

    def decided(self, now: float) -> None:
        """All of the moment has been done: what has arrived and was not dispatched waits."""
        for call in self._arrived:
            if call.queued:
                call.waits = True
                call.flow.fairness.enqueued(call.flow.meter, now)
        self._arrived.clear()

    def rejected(self, call: SimulatedCall, now: float) -> None:
        flow = call.flow
        flow.rejected += 1
        flow.deadlines += call.arrival.deadline_s is not None
        self._left_queue(call, now)

    def dispatched(self, call: SimulatedCall, command: Dispatch, now: float) -> None:
        flow = call.flow
        flow.starts[command.start] += 1
        flow.wait_s.append(between(call.arrival.time_s, now))
        self._left_queue(call, now)
        if self._on_dispatch is not None:
            warmth = "cold" if command.start is Start.COLD else "warm"
            arrival = call.arrival
            device = place_text(command.place)
            self._on_dispatch(
                DispatchLine(now, device, arrival.function, warmth, command.reason, arrival.tenant, arrival.time_s)
            )

    def _left_queue(self, call: SimulatedCall, now: float) -> None:
        call.queued = False
        if call.waits:
            call.flow.fairness.dequeued(call.flow.meter, now)

    def started(self, call: SimulatedCall, share: float, now: float, *, accelerated: bool) -> None:
        call.started = now
        call.share = share
        call.accelerated = accelerated
        call.flow.fairness.rate_changed(call.flow.meter, share, now)

    def finished(self, call: SimulatedCall, now: float) -> None:
        arrival, flow = call.arrival, call.flow
        latency_s = between(arrival.time_s, now)
        flow.latency_s.append(latency_s)
        if arrival.deadline_s is not None:
            flow.deadlines += 1
            flow.deadlines_met += latency_s <= arrival.deadline_s
        if call.accelerated:
            self.busy_s += call.share * (now - call.started)
        self.last_finish_s = now
        flow.fairness.rate_changed(flow.meter, -call.share, now)

    def sample_fairness(self, now: float) -> None:
        """Note how fair the time since the last sample was, if anything was contested in it."""
        accounts = [account for meter in self.meters for account in meter.accounts(now)]
        since = [
            (got_s - got_before, due_s - due_before)
            for (got_s, due_s), (got_before, due_before) in zip(accounts, self._accounts, strict=True)
        ]
        self._accounts = accounts
        if any(due_s > MIN_DUE_S for _, due_s in since):
            self.fairness_over_time.append((now, jain_index(since)))

    def all_latencies(self) -> Iterable[float]:
        return (value for record in self.flows.values() for value in record.latency_s)
