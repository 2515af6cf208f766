"""Counted on the way in plain numbers: a locked counter for each label would cost more than the rest of a warm call."""

from bisect import bisect_left

from aliquot.core.commands import Start
from aliquot.live.invocations.call import Call

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
MAX_ACTIONS = 10_000  # a tenant that makes names without end must not fill the page
OTHERS = ("", "")


class LatencyHistogram:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds

    def cumulated(self) -> list[tuple[str, float]]:
        """As Prometheus wants it."""
        count = 0
        pairs: list[tuple[str, float]] = []
        for bound, more in zip((*map(str, map(float, BOUNDS_S)), "+Inf"), self.buckets, strict=True):
            count += more
            pairs.append((bound, count))
        return pairs


class ActionMetrics:
    """One action's."""

    __slots__ = ("counts", "init", "run", "wait")

    def __init__(self) -> None:
        self.counts: dict[tuple[int, Start | None], int] = {}  # by status and kind of start
        self.wait = LatencyHistogram()
        self.init = LatencyHistogram()
        self.run = LatencyHistogram()

    def count(self, call: Call) -> None:
        outcome = call.outcome
        if outcome is None:  # it was refused: nothing ran
            return
        key = (outcome.status, call.run.start)
        counts = self.counts
        counts[key] = counts.get(key, 0) + 1
        self.wait.observe(call.run.wait_ms / 1000)
        self.run.observe(outcome.run_s)
        if call.run.init_s is not None:
            self.init.observe(call.run.init_s)


class Metrics:
    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str], ActionMetrics] = {}
        self.fires: dict[tuple[str, str], int] = {}  # by namespace and trigger

    def count(self, call: Call) -> None:
        """One that the gateway did not ask for itself: a component of a composition, or what a trigger set off."""
        self.tally(call.namespace.name, call.function).count(call)

    def count_fire(self, namespace: str, trigger: str) -> None:
        key = (namespace, trigger)
        if key not in self.fires and len(self.fires) >= MAX_ACTIONS:
            key = OTHERS
        self.fires[key] = self.fires.get(key, 0) + 1

    def tally(self, namespace: str, action: str) -> ActionMetrics:
        key = (namespace, action)
        if key not in self.tallies and len(self.tallies) >= MAX_ACTIONS:
            key = OTHERS
        return self.tallies.setdefault(key, ActionMetrics())
