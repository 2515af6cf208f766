"""Fairness measurements: how evenly service is divided among flows that wait at the same time.

A flow is backlogged while one of its calls waits. Service is device time times share, counted during runs and divided
by the flow's weight. Only times with two or more backlogged flows count, because a flow alone gets all it demands.

- Jain's index compares the service that each flow received with the service it was due. A backlogged flow is due a part
  of all service given to backlogged flows, in proportion to its weight. Flows count in proportion to what they were
  due, so that a flow that waited for an instant does not count as much as one that waited all day. If all flows are
  always backlogged, this is the ordinary index. 1 is fair.
- The largest gap is the largest difference in weighted service between any two flows over any window in which both are
  backlogged throughout. The value is exact, and the cost is proportional to the flows backlogged at once. At most
  `MAX_TRACKED_FLOWS` flows are tracked. Further flows are left out until they have been empty once.
"""

from collections.abc import Iterable, Iterator

from aliquot.core.model import FlowKey

MAX_TRACKED_FLOWS = 128
MIN_DUE_S = 1e-12  # less is a rounding error


class FlowMeter:
    """The service counters of one flow."""

    __slots__ = (
        "clock", "due_mark", "due_s", "got_s", "number", "pairs", "queued", "rate", "service_s", "since", "weight",
    )  # fmt: skip

    def __init__(self, number: int, weight: float) -> None:
        self.number = number
        self.weight = weight
        self.queued = 0
        self.rate = 0.0  # sum of the shares of its current runs
        self.service_s = 0.0  # total weighted service
        self.since: float = 0  # time up to which service_s is counted
        self.clock = 0.0  # contested time up to which got_s is counted
        self.got_s = 0.0  # service while backlogged and contested
        self.due_s = 0.0  # service due while backlogged and contested
        self.due_mark = 0.0  # the meter's due per weight when the flow became backlogged
        self.pairs: dict[int, list[float]] = {}  # by other flow: lowest and highest difference of service_s

    def service_at(self, now: float) -> float:
        return self.service_s + self.rate * (now - self.since) / self.weight


class FairnessMeter:
    """Measures fairness among the flows of one domain."""

    def __init__(self, weights: dict[FlowKey, float]) -> None:
        self._flows = {key: FlowMeter(number, weight) for number, (key, weight) in enumerate(weights.items())}
        self._tracked: dict[int, FlowMeter] = {}
        self._now: float = 0
        self._contested_s = 0.0  # time with two or more backlogged flows
        self._due = 0.0  # service due per unit of weight, over contested time
        self._backlogged = 0
        self._rate = 0.0  # sum over all backlogged flows
        self._weight = 0.0
        self.max_gap_s = 0.0

    def flow(self, key: FlowKey) -> FlowMeter:
        return self._flows[key]

    def enqueued(self, flow: FlowMeter, now: float) -> None:
        """Count a waiting call. The first one makes its flow backlogged."""
        flow.queued += 1
        if flow.queued == 1:
            self._advance(now)
            self._backlogged += 1
            self._rate += flow.rate
            self._weight += flow.weight
            flow.clock = self._contested_s
            flow.due_mark = self._due
            self._track(flow, now)

    def dequeued(self, flow: FlowMeter, now: float) -> None:
        """Count a call that no longer waits. After the last one its flow is not backlogged."""
        flow.queued -= 1
        if not flow.queued:
            self._advance(now)
            self._count(flow)
            self._untrack(flow, now)
            flow.due_s += flow.weight * (self._due - flow.due_mark)
            self._backlogged -= 1
            # Reset to 0 without backlog, so that rounding errors do not add up.
            self._rate = self._rate - flow.rate if self._backlogged else 0.0
            self._weight = self._weight - flow.weight if self._backlogged else 0.0

    def rate_changed(self, flow: FlowMeter, by: float, now: float) -> None:
        """Record that a run of the flow has begun (`by` is its share) or ended (`by` is minus its share)."""
        if flow.queued:
            self._advance(now)
            self._count(flow)
            self._rate += by
        if flow.rate:
            flow.service_s += flow.rate * (now - flow.since) / flow.weight
        flow.since = now
        if flow.pairs:
            self._compare(flow, now)
        flow.rate += by

    def accounts(self, now: float) -> list[tuple[float, float]]:
        """Return the service that each flow has received so far, and the service it was due."""
        self._advance(now)
        accounts = []
        for flow in self._flows.values():
            got_s, due_s = flow.got_s, flow.due_s
            if flow.queued:
                got_s += flow.rate * (self._contested_s - flow.clock)
                due_s += flow.weight * (self._due - flow.due_mark)
            accounts.append((got_s, due_s))
        return accounts

    def flows(self) -> Iterator[FlowMeter]:
        """Return the flows that were ever due any service."""
        return (flow for flow in self._flows.values() if flow.due_s > 0)

    def _advance(self, now: float) -> None:
        if self._backlogged > 1:
            self._contested_s += now - self._now
            self._due += (now - self._now) * self._rate / self._weight
        self._now = now

    def _count(self, flow: FlowMeter) -> None:
        flow.got_s += flow.rate * (self._contested_s - flow.clock)
        flow.clock = self._contested_s

    def _track(self, flow: FlowMeter, now: float) -> None:
        if len(self._tracked) >= MAX_TRACKED_FLOWS:
            return
        service_s = flow.service_at(now)
        for other in self._tracked.values():
            gap = service_s - other.service_s - other.rate * (now - other.since) / other.weight
            if other.number < flow.number:
                gap = -gap
            flow.pairs[other.number] = other.pairs[flow.number] = [gap, gap]
        self._tracked[flow.number] = flow

    def _untrack(self, flow: FlowMeter, now: float) -> None:
        if self._tracked.pop(flow.number, None) is None:
            return
        self._compare(flow, now)
        for number in flow.pairs:
            del self._tracked[number].pairs[flow.number]
        flow.pairs.clear()

    def _compare(self, flow: FlowMeter, now: float) -> None:
        """Update the extreme differences, which occur only where one of two flows starts or stops running."""
        service_s, tracked = flow.service_at(now), self._tracked
        for number, span in flow.pairs.items():
            other = tracked[number]
            gap = service_s - other.service_s - other.rate * (now - other.since) / other.weight
            if number < flow.number:
                gap = -gap
            if gap < span[0]:
                span[0] = gap
            elif gap > span[1]:
                span[1] = gap
            else:
                continue
            self.max_gap_s = max(self.max_gap_s, span[1] - span[0])


def jain_of_meters(meters: Iterable[FairnessMeter]) -> float:
    """Return Jain's index over the flows of all meters, or 1 if flows never competed."""
    return jain_index((flow.got_s, flow.due_s) for meter in meters for flow in meter.flows())


def jain_index(accounts: Iterable[tuple[float, float]]) -> float:
    """Return Jain's index of pairs of received and due service."""
    counted = [(got_s, due_s) for got_s, due_s in accounts if due_s > MIN_DUE_S]
    spread = sum(got_s**2 / due_s for got_s, due_s in counted)
    total_due_s = sum(due_s for _, due_s in counted)
    return sum(got_s for got_s, _ in counted) ** 2 / (total_due_s * spread) if spread else 1.0
