"""What a simulation keeps of each call: enough for every figure of the report, and nothing while it is over."""

from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from aliquot.core.clock import between
from aliquot.core.commands import Dispatch, Start
from aliquot.core.model import FlowKey
from aliquot.sim.arrivals import Arrival
from aliquot.sim.fairness import LEAST_DUE_S, FairnessMeter, jain_of


class Call:
    """A call that has not ended."""

    __slots__ = ("accelerated", "arrival", "key", "share", "started")

    def __init__(self, arrival: Arrival, key: FlowKey) -> None:
        self.arrival = arrival
        self.key = key
        self.started: float = 0
        self.share = 0.0
        self.accelerated = False


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
        self.rejected = 0
        self.deadlines = self.deadlines_met = 0


class Recorder:
    def __init__(
        self,
        weights: dict[FlowKey, float],
        domains: dict[FlowKey, str],
        on_dispatch: Callable[[DispatchLine], None] | None,
    ) -> None:
        self.flows = {key: FlowRecord() for key in weights}
        # Flows that never compete are not compared.
        meters = {
            domain: FairnessMeter({key: weight for key, weight in weights.items() if domains[key] == domain})
            for domain in dict.fromkeys(domains.values())
        }
        self._meters = {key: meters[domains[key]] for key in weights}
        self.meters = list(meters.values())
        self.bytes_moved = 0
        self.busy_s = 0.0  # time of accelerators, by share
        self.first_arrival_s: float | None = None
        self.last_finish_s: float = 0
        self._on_dispatch = on_dispatch
        self.fairness_over_time: list[tuple[float, float]] = []  # moments, and Jain's index since the one before
        self._accounts: list[tuple[float, float]] = [(0.0, 0.0)] * len(weights)

    def arrived(self, call: Call, now: float) -> None:
        if self.first_arrival_s is None:
            self.first_arrival_s = now
        self._meters[call.key].enqueued(call.key, now)

    def rejected(self, call: Call, now: float) -> None:
        record = self.flows[call.key]
        record.rejected += 1
        record.deadlines += call.arrival.deadline_s is not None
        self._meters[call.key].dequeued(call.key, now)

    def dispatched(self, call: Call, command: Dispatch, now: float) -> None:
        record = self.flows[call.key]
        record.starts[command.start] += 1
        record.wait_s.append(between(call.arrival.time_s, now))
        self._meters[call.key].dequeued(call.key, now)
        if self._on_dispatch is not None:
            warmth = "cold" if command.start is Start.COLD else "warm"
            arrival = call.arrival
            self._on_dispatch(
                DispatchLine(
                    now, command.device, arrival.function, warmth, command.reason, arrival.tenant, arrival.time_s
                )
            )

    def started(self, call: Call, share: float, now: float, *, accelerated: bool) -> None:
        call.started = now
        call.share = share
        call.accelerated = accelerated
        self._meters[call.key].rate_changed(call.key, share, now)

    def finished(self, call: Call, now: float) -> None:
        latency_s = between(call.arrival.time_s, now)
        record = self.flows[call.key]
        record.latency_s.append(latency_s)
        if call.arrival.deadline_s is not None:
            record.deadlines += 1
            record.deadlines_met += latency_s <= call.arrival.deadline_s
        if call.accelerated:
            self.busy_s += call.share * (now - call.started)
        self.last_finish_s = now
        self._meters[call.key].rate_changed(call.key, -call.share, now)

    def sample_fairness(self, now: float) -> None:
        """Note how fair the time since the last sample was, if anything was contested in it."""
        accounts = [account for meter in self.meters for account in meter.accounts(now)]
        since = [
            (got_s - got_before, due_s - due_before)
            for (got_s, due_s), (got_before, due_before) in zip(accounts, self._accounts, strict=True)
        ]
        self._accounts = accounts
        if any(due_s > LEAST_DUE_S for _, due_s in since):
            self.fairness_over_time.append((now, jain_of(since)))

    def all_latencies(self) -> Iterable[float]:
        return (value for record in self.flows.values() for value in record.latency_s)
