"""Metrics of calls as plain numbers.

A Prometheus counter with a lock and labels would cost more than the rest of a warm call.
"""

from bisect import bisect_left

from aliquot.budgets import Budget
from aliquot.core.commands import Start
from aliquot.live.invocations.call import Call

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
MAX_ACTIONS = 10_000  # of all namespaces; a namespace's actions beyond its part are counted together
OTHERS = ""


class LatencyHistogram:
    """A histogram of durations with fixed bounds."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds

    def add(self, other: "LatencyHistogram") -> None:
        """Add the durations of another histogram."""
        self.buckets = [one + more for one, more in zip(self.buckets, other.buckets, strict=True)]
        self.total += other.total

    def cumulated(self) -> list[tuple[str, float]]:
        """Return the cumulative counts by upper bound, as Prometheus expects them."""
        count = 0
        pairs: list[tuple[str, float]] = []
        for bound, more in zip((*map(str, map(float, BOUNDS_S)), "+Inf"), self.buckets, strict=True):
            count += more
            pairs.append((bound, count))
        return pairs


class ActionMetrics:
    """The counters and histograms of one action."""

    __slots__ = ("counts", "init", "promises", "run", "wait")

    def __init__(self) -> None:
        self.counts: dict[tuple[int, Start | None], int] = {}  # by status and kind of start
        # By the end of calls with an objective (refused, kept, broken, unpromised), and why it was refused or broken.
        self.promises: dict[tuple[str, str], int] = {}
        self.wait = LatencyHistogram()
        self.init = LatencyHistogram()
        self.run = LatencyHistogram()

    def count(self, call: Call) -> None:
        outcome = call.outcome
        if call.objective is not None:
            end = call.objective.end()
            self.promises[end] = self.promises.get(end, 0) + 1
        if outcome is None:  # the call was refused and did not run
            return
        run, counts = call.run, self.counts
        key = (outcome.status, run.start)
        counts[key] = counts.get(key, 0) + 1
        self.wait.observe(run.wait_ms / 1000)
        self.run.observe(outcome.run_s)
        if run.init_s is not None:
            self.init.observe(run.init_s)

    def add(self, other: "ActionMetrics") -> None:
        """Add the numbers of another action."""
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        for end, count in other.promises.items():
            self.promises[end] = self.promises.get(end, 0) + count
        for own, more in ((self.wait, other.wait), (self.init, other.init), (self.run, other.run)):
            own.add(more)


class Metrics:
    """The counters of all actions and triggers."""

    def __init__(self) -> None:
        self.actions: dict[tuple[str, str], ActionMetrics] = {}
        self.fires: dict[tuple[str, str], int] = {}  # by namespace and trigger
        self._known_actions = Budget("metrics", "actions", MAX_ACTIONS)
        self._known_triggers = Budget("metrics", "triggers", MAX_ACTIONS)

    def count(self, call: Call) -> None:
        """Count a call that did not come from the gateway: a component, or a call of a trigger's rule."""
        self.of_action(call.namespace.name, call.function).count(call)

    def count_fire(self, namespace: str, trigger: str) -> None:
        key = (namespace, trigger)
        if key not in self.fires and not _is_taken(self._known_triggers, namespace):
            key = (namespace, OTHERS)
        self.fires[key] = self.fires.get(key, 0) + 1

    def sum_of_actions(self) -> ActionMetrics:
        """Return the sum over all actions of all namespaces."""
        total = ActionMetrics()
        for action in self.actions.values():
            total.add(action)
        return total

    def of_action(self, namespace: str, action: str) -> ActionMetrics:
        key = (namespace, action)
        if key not in self.actions and not _is_taken(self._known_actions, namespace):
            key = (namespace, OTHERS)
        return self.actions.setdefault(key, ActionMetrics())


def _is_taken(known: Budget, namespace: str) -> bool:
    """Take a place for a further name of the namespace. Return False if it has its part already."""
    if not known.fits(namespace, 1):
        return False
    known.take(namespace, 1)
    return True
