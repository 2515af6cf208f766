"""Work done in windows of 100 ms, as the functions themselves have counted it, and what it says of their shares."""

from collections.abc import Sequence
from math import floor
from statistics import pstdev
from typing import Any

import msgspec
from msgspec import Struct

PER_SECOND = 10  # windows, as the function counts them
WARM_UP = 3  # windows that are cut off: until all have begun, and the kernel has forgotten that they slept
POINTS = 100


class WindowCounts(Struct, frozen=True):
    """What a call of the matrix loop returns: turns by window, the first of which has this number."""

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
        place = window - self.first
        return self.counts[place] if 0 <= place < len(self.counts) else 0

    def between(self, start: float, stop: float) -> float:
        """Turns in that time; of a window that is only partly in it, as much of its turns."""
        total = 0.0
        for place, count in enumerate(self.counts):
            begins = max((self.first + place) / PER_SECOND, self.began)
            ends = min((self.first + place + 1) / PER_SECOND, self.ended)
            inside = min(ends, stop) - max(begins, start)
            if inside > 0 and ends > begins:
                total += count * inside / (ends - begins)
        return total


def read_counts(result: dict[str, Any]) -> WindowCounts:
    return msgspec.convert(result, WindowCounts)


def common_windows(tallies: Sequence[WindowCounts], warm_up: int = WARM_UP) -> range:
    """The whole windows in which all were at work, without the first few."""
    start = max(floor(each.began * PER_SECOND) for each in tallies) + 1 + warm_up
    return range(start, min(floor(each.ended * PER_SECOND) for each in tallies))


def mean_shares(tallies: Sequence[WindowCounts], windows: range) -> list[float]:
    """Of all work that was done on the device, in points."""
    done = [sum(each.at(window) for window in windows) for each in tallies]
    return [POINTS * each / max(1, sum(done)) for each in done]


def window_shares(tallies: Sequence[WindowCounts], windows: range) -> list[list[float]]:
    """The same for each window by itself; one in which nobody came to do anything says nothing."""
    totals = {window: sum(each.at(window) for each in tallies) for window in windows}
    return [[POINTS * each.at(window) / total for window, total in totals.items() if total] for each in tallies]


def deviations(shares: Sequence[Sequence[float]]) -> list[float]:
    """From window to window, of each."""
    return [pstdev(each) if each else 0.0 for each in shares]
