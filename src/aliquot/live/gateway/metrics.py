"""What `/metrics` shows: counted in plain numbers on the way, put into Prometheus' words when asked."""

from bisect import bisect_left

from aliquot.live.call import Call

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STATUSES = 4


class Histogram:
    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds


class Tally:
    """One action's."""

    __slots__ = ("counts", "init", "run", "wait")

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str | None], int] = {}  # by status and kind of start
        self.wait = Histogram()
        self.init = Histogram()
        self.run = Histogram()

    def count(self, call: Call) -> None:
        outcome = call.outcome
        if outcome is None:
            return
        key = (outcome.status, call.start)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.wait.observe(call.wait_ms / 1000)
        self.run.observe(outcome.run_s)
        if call.init_s is not None:
            self.init.observe(call.init_s)


class Metrics:
    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str], Tally] = {}

    def tally(self, namespace: str, action: str) -> Tally:
        return self.tallies.setdefault((namespace, action), Tally())
