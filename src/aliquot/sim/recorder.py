"""Records the results of a simulation: per flow, two numbers for each ended call, and counters for the report."""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from aliquot.core.admission.records import Blame, Refusal
from aliquot.core.clock import between
from aliquot.core.commands import Dispatch, Start
from aliquot.core.domain import domain_of
from aliquot.core.model import FlowKey, FunctionSpec
from aliquot.core.places import place_text
from aliquot.sim.arrivals import Arrival
from aliquot.sim.fabric.figures import DataFigures
from aliquot.sim.fairness import MIN_DUE_S, FairnessMeter, FlowMeter, jain_index

COST_TOLERANCE = 1e-9  # costs are sums of products


class DispatchLine(NamedTuple):
    """One dispatch, as the schedule file lists it."""

    time_s: float
    device: str
    function: str
    start: str  # cold or warm; cold if a sandbox had to be started
    reason: str
    tenant: str
    arrived_s: float


class CallLine(NamedTuple):
    """One ended call, as the calls file lists it."""

    arrived_s: float
    function: str
    tenant: str
    end: str  # completed, rejected or failed
    ended_s: float
    device: str
    promised: bool
    met: bool | None  # whether it met its limits; None if it had none
    blame: str  # for a broken promise
    cost: float
    reason: str  # of a refusal


class FlowRecord:
    """Results of the ended calls of one flow, and its fairness meters."""

    def __init__(self, fairness: FairnessMeter, meter: FlowMeter) -> None:
        self.fairness = fairness
        self.meter = meter
        self.latency_s = array("d")
        self.wait_s = array("d")
        self.starts = dict.fromkeys(Start, 0)
        self.rejected = 0
        self.cached = 0  # calls that got the result of an equal one
        self.failed = 0
        self.deadlines = self.deadlines_met = 0
        self.promised = self.kept = 0
        self.broken = dict.fromkeys(Blame, 0)
        self.refused: dict[str, int] = {}  # by cause
        self.cost = 0.0


class SimulatedCall:
    """A call that has arrived and not ended yet."""

    __slots__ = (
        "accelerated", "arrival", "blame", "device", "dispatched", "flow", "price_s", "promised", "queued", "share",
        "started", "waits",
    )  # fmt: skip

    def __init__(self, arrival: Arrival, flow: FlowRecord) -> None:
        self.arrival = arrival
        self.flow = flow
        self.queued = True
        self.waits = False  # it was not dispatched in the step of its arrival
        self.started: float = 0
        self.share = 0.0
        self.accelerated = False
        self.dispatched: float = 0
        self.device = ""
        self.price_s = 0.0  # of a second in which it holds its part of the device
        self.promised = False
        self.blame: Blame | None = None  # for its broken promise

    def cost(self, now: float) -> float:
        """Return the cost of a call that ends now."""
        return self.price_s * (now - self.dispatched)


class RunRecorder:
    """Collects the results of one run."""

    def __init__(
        self,
        weights: dict[FlowKey, float],
        domains: dict[FlowKey, str],
        on_dispatch: Callable[[DispatchLine], None] | None,
        on_end: Callable[[CallLine], None] | None = None,
    ) -> None:
        # One meter per domain, because flows of different domains do not compete.
        meters = {
            domain: FairnessMeter({key: weight for key, weight in weights.items() if domains[key] == domain})
            for domain in dict.fromkeys(domains.values())
        }
        self.flows = {key: FlowRecord(meters[domains[key]], meters[domains[key]].flow(key)) for key in weights}
        # Keyed by plain tuples, which are faster to make than FlowKeys.
        self._flows: dict[tuple[str, str], FlowRecord] = {(*key,): record for key, record in self.flows.items()}
        self.meters = list(meters.values())
        self._arrived: list[SimulatedCall] = []  # in the current step
        self.bytes_moved = 0
        self.data: DataFigures | None = None  # set at the end of a simulation with files
        self.busy_s = 0.0  # accelerator time times share
        self.first_arrival_s: float | None = None
        self.last_finish_s: float = 0
        self._on_dispatch = on_dispatch
        self._on_end = on_end
        self.fairness_over_time: list[tuple[float, float]] = []  # time, and Jain's index since the previous sample
        self._accounts: list[tuple[float, float]] = [(0.0, 0.0)] * len(weights)

    def arrived(self, arrival: Arrival, now: float) -> SimulatedCall:
        if self.first_arrival_s is None:
            self.first_arrival_s = now
        call = SimulatedCall(arrival, self._flows[arrival[2], arrival[1]])  # tenant and function
        self._arrived.append(call)
        return call

    def step_ended(self, now: float) -> None:
        """End a step: calls that arrived in it and were not dispatched now wait."""
        for call in self._arrived:
            if call.queued:
                call.waits = True
                call.flow.fairness.enqueued(call.flow.meter, now)
        self._arrived.clear()

    def rejected(self, call: SimulatedCall, refusal: Refusal | None, now: float) -> None:
        flow = call.flow
        flow.rejected += 1
        if refusal is not None:
            flow.refused[refusal.why] = flow.refused.get(refusal.why, 0) + 1
        self._ended(call, "rejected", now, reason="" if refusal is None else refusal.why)
        flow.deadlines += call.arrival.deadline_s is not None
        self._left_queue(call, now)

    def cached(self, arrival: Arrival, now: float) -> None:
        """Record a call that got the result of an equal one without a run."""
        if self.first_arrival_s is None:
            self.first_arrival_s = now
        call = SimulatedCall(arrival, self._flows[arrival[2], arrival[1]])
        flow, latency_s = call.flow, between(arrival[0], now)
        call.dispatched = now
        flow.cached += 1
        flow.latency_s.append(latency_s)
        if arrival.deadline_s is not None:
            flow.deadlines += 1
            flow.deadlines_met += latency_s <= arrival.deadline_s
        self.last_finish_s = now
        self._ended(call, "completed", now)

    def failed(self, call: SimulatedCall, now: float) -> None:
        """Record a call that ended without a result, because its node was lost or none came on which it fits."""
        flow = call.flow
        flow.failed += 1
        self._ended(call, "failed", now)
        flow.deadlines += call.arrival.deadline_s is not None
        if call.queued:
            self._left_queue(call, now)
        elif call.share:
            flow.fairness.rate_changed(flow.meter, -call.share, now)

    def dispatched(self, call: SimulatedCall, command: Dispatch, now: float) -> None:
        flow = call.flow
        flow.starts[command.start] += 1
        call.dispatched = now
        if call.queued:  # otherwise its node was lost before it ran, and it is dispatched again
            arrived = call.arrival[0]
            flow.wait_s.append(0.0 if arrived == now else between(arrived, now))
            call.queued = False
            if call.waits:
                flow.fairness.dequeued(flow.meter, now)
        if self._on_end is not None:
            call.device = place_text(command.place)
        if self._on_dispatch is not None:
            start = "cold" if command.start is Start.COLD else "warm"
            arrival = call.arrival
            device = place_text(command.place)
            self._on_dispatch(
                DispatchLine(now, device, arrival.function, start, command.reason, arrival.tenant, arrival.time_s)
            )

    def _left_queue(self, call: SimulatedCall, now: float) -> None:
        call.queued = False
        if call.waits:
            call.flow.fairness.dequeued(call.flow.meter, now)

    def started(self, call: SimulatedCall, share: float, price_s: float, now: float, *, accelerated: bool) -> None:
        flow = call.flow
        call.price_s = price_s
        call.started = now
        call.share = share
        call.accelerated = accelerated
        flow.fairness.rate_changed(flow.meter, share, now)

    def finished(self, call: SimulatedCall, now: float) -> None:
        arrival, flow, share = call.arrival, call.flow, call.share
        latency_s = between(arrival[0], now)
        flow.latency_s.append(latency_s)
        if arrival.deadline_s is not None:
            flow.deadlines += 1
            flow.deadlines_met += latency_s <= arrival.deadline_s
        flow.cost += call.cost(now)
        self._ended(call, "completed", now)
        if call.accelerated:
            self.busy_s += share * (now - call.started)
        self.last_finish_s = now
        flow.fairness.rate_changed(flow.meter, -share, now)

    def add_graphs(self, keys: Iterable[FlowKey]) -> None:
        """Add the graphs that are executed. They hold no devices themselves, so they have no part in fairness."""
        for key in keys:
            meter = FairnessMeter({key: 1})
            self.flows[key] = self._flows[*key,] = FlowRecord(meter, meter.flow(key))

    def execution_ended(
        self, arrival: Arrival, end: str, now: float, cost: float, reason: str, *, promised: bool, blame: Blame | None
    ) -> None:
        """Record how the execution of a graph ended. Its calls are recorded on their own."""
        flow = self._flows[arrival[2], arrival[1]]
        latency_s = between(arrival[0], now)
        flow.deadlines += arrival.deadline_s is not None
        flow.rejected += end == "rejected"
        flow.failed += end == "failed"
        if end == "completed":
            flow.latency_s.append(latency_s)
            flow.deadlines_met += arrival.deadline_s is not None and latency_s <= arrival.deadline_s
        if reason:
            flow.refused[reason] = flow.refused.get(reason, 0) + 1
        self._count(flow, CallLine(
            arrival.time_s, arrival.function, arrival.tenant, end, now, "", promised, None,
            "" if blame is None else blame, cost, reason,
        ), arrival)  # fmt: skip

    def _ended(self, call: SimulatedCall, end: str, now: float, *, reason: str = "") -> None:
        """Record how a call ended: its promise was kept or broken, and what it cost."""
        arrival = call.arrival
        cost = call.cost(now) if end == "completed" else 0.0
        blame = "" if call.blame is None else call.blame
        self._count(call.flow, CallLine(
            arrival.time_s, arrival.function, arrival.tenant, end, now, call.device, call.promised, None, blame, cost,
            reason,
        ), arrival)  # fmt: skip

    def _count(self, flow: FlowRecord, line: CallLine, arrival: Arrival) -> None:
        """Count the promise of a call or an execution, and pass on its line."""
        if arrival.deadline_s is not None or arrival.cost_limit is not None:
            met = line.end == "completed" and not line.blame and _within_limits(arrival, line.cost, line.ended_s)
            line = line._replace(met=met)
            flow.promised += line.promised
            flow.kept += line.promised and met
            if line.promised and not met:
                flow.broken[Blame(line.blame) if line.blame else Blame.PLATFORM] += 1
        if self._on_end is not None:
            self._on_end(line)

    def sample_fairness(self, now: float) -> None:
        """Append Jain's index since the last sample, if flows competed in that time."""
        accounts = [account for meter in self.meters for account in meter.accounts(now)]
        since = [
            (got_s - got_before, due_s - due_before)
            for (got_s, due_s), (got_before, due_before) in zip(accounts, self._accounts, strict=True)
        ]
        self._accounts = accounts
        if any(due_s > MIN_DUE_S for _, due_s in since):
            self.fairness_over_time.append((now, jain_index(since)))

    def moved(self, size: int) -> None:
        """Count bytes moved to or from a device."""
        self.bytes_moved += size

    def finish(self, data: DataFigures | None) -> None:
        """End the run with its figures about files, if it has files."""
        self.data = data

    def all_latencies(self) -> Iterable[float]:
        return (value for record in self.flows.values() for value in record.latency_s)


def _within_limits(arrival: Arrival, cost: float, now: float) -> bool:
    deadline_s, limit = arrival.deadline_s, arrival.cost_limit
    in_time = deadline_s is None or between(arrival.time_s, now) <= deadline_s
    return in_time and (limit is None or cost <= limit * (1 + COST_TOLERANCE))


def recorder_of(
    specs: Mapping[str, FunctionSpec],
    flows: list[FlowKey],
    tenant_weights: Mapping[str, float],
    on_dispatch: Callable[[DispatchLine], None] | None,
    on_end: Callable[[CallLine], None] | None,
) -> RunRecorder:
    """Return a recorder for these flows of functions."""
    functions = {key: specs[key.function] for key in flows}
    weights = {key: tenant_weights.get(key.tenant, 1) * functions[key].weight for key in functions}
    return RunRecorder(weights, {key: domain_of(functions[key]) for key in functions}, on_dispatch, on_end)
