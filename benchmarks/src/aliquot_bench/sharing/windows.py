"""Work in windows of 100 ms, as the functions count it, and the shares computed from it."""

from collections.abc import Sequence
from math import floor
from statistics import pstdev
from typing import Any

import msgspec
from msgspec import Struct

from aliquot_bench.result import PERCENT

PER_SECOND = 10  # windows, as `functions/matrix.py` counts them
WARM_UP = 3  # windows left out: until all loops run, and the kernel no longer favours those that slept


class WindowCounts(Struct, frozen=True):
    """The result of one call of the matrix loop: its iterations by window, from window number `first` on."""

    began: float
    ended: float
    turns: int
    first: int
    counts: list[int]
    marked: float | None = None
    born: int = 0

    @property
    def per_second(self) -> float:
        return self.turns / (self.ended - self.began)

    def at(self, window: int) -> int:
        """Return the iterations in a window."""
        index = window - self.first
        return self.counts[index] if 0 <= index < len(self.counts) else 0

    def between(self, start: float, stop: float) -> float:
        """Return the iterations in an interval, with the proportional part of windows at its ends."""
        total = 0.0
        for index, count in enumerate(self.counts):
            begins = max((self.first + index) / PER_SECOND, self.began)
            ends = min((self.first + index + 1) / PER_SECOND, self.ended)
            inside = min(ends, stop) - max(begins, start)
            if inside > 0 and ends > begins:
                total += count * inside / (ends - begins)
        return total


def read_counts(result: dict[str, Any]) -> WindowCounts:
    """Convert the result of a call."""
    return msgspec.convert(result, WindowCounts)


def common_windows(tallies: Sequence[WindowCounts], warm_up: int = WARM_UP) -> range:
    """Return the whole windows in which all loops ran, without the first few."""
    start = max(floor(each.began * PER_SECOND) for each in tallies) + 1 + warm_up
    return range(start, min(floor(each.ended * PER_SECOND) for each in tallies))


def mean_shares(tallies: Sequence[WindowCounts], windows: range) -> list[float]:
    """Return the share of each loop in all work on the device, in percent."""
    done = [sum(each.at(window) for window in windows) for each in tallies]
    return [PERCENT * each / max(1, sum(done)) for each in done]


def window_shares(tallies: Sequence[WindowCounts], windows: range) -> list[list[float]]:
    """Return the shares of each loop by window. Windows without any work are left out."""
    totals = {window: sum(each.at(window) for each in tallies) for window in windows}
    return [[PERCENT * each.at(window) / total for window, total in totals.items() if total] for each in tallies]


def deviations(shares: Sequence[Sequence[float]]) -> list[float]:
    """Return the standard deviation of each loop's share over the windows."""
    return [pstdev(each) if each else 0.0 for each in shares]
