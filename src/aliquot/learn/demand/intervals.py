"""Prediction intervals that cover as often as they say, whatever the forecast: adaptive conformal inference.

An interval's end is a quantile of the last errors of the same forecast, in asinh, because errors grow with demand. Its
level is not fixed: after a value beyond the end the interval grows, otherwise it shrinks a little (Gibbs and Candès,
2021). So the long-run coverage is right even if the series changes. Counts are often equal. A small seeded draw is
added to each error, so that equal ones have an order and no interval covers more than it says.
"""

from bisect import bisect_left, insort
from collections import deque
from math import asinh, sinh
from random import Random

MAX_SCORES = 300
RATE = 0.02  # by which the level follows misses
MIN_SCORES = 20  # with fewer the largest error is taken
MAX_ERROR = 40.0  # in asinh, so that no end is infinite
TIE = 1e-6  # size of the draw
MIN_LEVEL, MAX_LEVEL = -0.2, 0.5
WIDENED = 10  # spreads of the errors by which an end moves for each unit of a level below 0


class AdaptiveEnd:
    """One end of an interval, as an error that a given part of the errors exceeds."""

    __slots__ = ("_newest", "_ordered", "level", "target")

    def __init__(self, target: float) -> None:
        self.target = self.level = target  # part of the values beyond the end
        self._ordered: list[float] = []
        self._newest: deque[float] = deque()

    @property
    def error(self) -> float:
        """Return the error at the end of the interval."""
        ordered = self._ordered
        if len(ordered) < MIN_SCORES:
            return ordered[-1] if ordered else 0.0
        if self.level <= 0:  # the largest error is exceeded too often
            return ordered[-1] - WIDENED * self.level * (ordered[-1] - ordered[0])
        return ordered[min(len(ordered) - 1, int((1 - self.level) * (len(ordered) + 1)))]

    def learn(self, error: float) -> bool | None:
        """Add an error, and return whether it was beyond the end in force, or None if that was not known yet."""
        ordered = self._ordered
        missed = None
        if len(ordered) >= MIN_SCORES:
            missed = error > self.error
            self.level = min(MAX_LEVEL, max(MIN_LEVEL, self.level + RATE * (self.target - missed)))
        insort(ordered, error)
        self._newest.append(error)
        if len(ordered) > MAX_SCORES:
            del ordered[bisect_left(ordered, self._newest.popleft())]
        return missed


class AdaptiveInterval:
    """The interval around a forecast that has a tenth of the values outside, a half of these at each end."""

    __slots__ = ("_random", "above", "below")

    def __init__(self, random: Random, outside: float = 0.1) -> None:
        self._random = random
        self.below, self.above = AdaptiveEnd(outside / 2), AdaptiveEnd(outside / 2)

    def around(self, forecast: float, most: float) -> tuple[float, float]:
        """Return the ends of the interval, which are from 0 to `most`."""
        middle = asinh(forecast)
        low = max(0.0, sinh(middle - self.below.error))
        return low, max(low, min(most, sinh(min(MAX_ERROR, middle + self.above.error))))

    def learn(self, value: float, forecast: float) -> bool | None:
        """Learn from the value that came, and return whether it was outside, or None if there were too few before."""
        error = asinh(value) - asinh(forecast) + TIE * (self._random.random() - 0.5)
        above, below = self.above.learn(error), self.below.learn(-error)
        return None if above is None else above or bool(below)
