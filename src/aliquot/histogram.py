"""Histograms of durations as plain numbers.

A Prometheus histogram with a lock and labels would cost more than the rest of a warm call.
"""

from bisect import bisect_left
from typing import NamedTuple

BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SHORT_BOUNDS_S = (0.00002, 0.00005, 0.0001, 0.0002, *BOUNDS_S[:10])


class Exemplar(NamedTuple):
    """A call that stands for others of its class of durations."""

    trace_id: str
    seconds: float
    at_s: float  # epoch seconds


class LatencyHistogram:
    """A histogram of durations with fixed bounds, and an exemplar for each class that has one."""

    __slots__ = ("bounds", "buckets", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}  # by the number of the class

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def note(self, trace_id: str, seconds: float, at_s: float) -> None:
        """Keep a duration that was observed as the exemplar of its class."""
        self.exemplars[bisect_left(self.bounds, seconds)] = Exemplar(trace_id, seconds, at_s)

    def add(self, other: "LatencyHistogram") -> None:
        """Add the durations of another histogram with the same bounds."""
        self.buckets = [one + more for one, more in zip(self.buckets, other.buckets, strict=True)]
        self.total += other.total
        self.exemplars |= other.exemplars

    def cumulated(self) -> list[tuple[str, float, Exemplar | None]]:
        """Return the cumulative counts by upper bound, as Prometheus expects them, with the exemplar of each class."""
        count = 0
        found: list[tuple[str, float, Exemplar | None]] = []
        names = (*(str(float(bound)) for bound in self.bounds), "+Inf")
        for number, (name, more) in enumerate(zip(names, self.buckets, strict=True)):
            count += more
            found.append((name, count, self.exemplars.get(number)))
        return found
