"""Probabilities made true: what was said is set right by how often it came, on sessions that were held back."""

from bisect import bisect_right
from collections.abc import Iterable

from msgspec import Struct

_EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_PRIOR = 8.0  # how many answers the word of the predictor itself is worth


class Calibration(Struct, frozen=True, array_like=True):
    """Straight lines between points; nothing: what is said is taken as it is."""

    said: list[float] = []
    came: list[float] = []

    def __call__(self, probability: float) -> float:
        if not self.said:
            return probability
        place = bisect_right(self.said, probability)
        if place == 0:
            return self.came[0] * (probability / self.said[0] if self.said[0] else 1.0)
        if place == len(self.said):
            return self.came[-1]
        low, high = self.said[place - 1], self.said[place]
        part = (probability - low) / (high - low)
        return self.came[place - 1] + part * (self.came[place] - self.came[place - 1])


def calibrate(answers: Iterable[tuple[float, bool]]) -> Calibration:
    """From what was said, and whether it came. Never turns an order round: less likely stays no more likely."""
    numbers = [0] * len(_EDGES)
    sums = [0.0] * len(_EDGES)
    hits = [0] * len(_EDGES)
    for probability, is_there in answers:
        place = bisect_right(_EDGES, probability) - 1
        numbers[place] += 1
        sums[place] += probability
        hits[place] += is_there
    # Neighbours that would fall are pooled until none does.
    pools: list[tuple[float, float, float]] = []  # how many, what was said in all, what came in all
    for number, said, came in zip(numbers, sums, hits, strict=True):
        if not number:
            continue
        pool = (float(number), said, float(came))
        while pools and _came(pools[-1]) >= _came(pool):
            last = pools.pop()
            pool = (pool[0] + last[0], pool[1] + last[1], pool[2] + last[2])
        pools.append(pool)
    return Calibration([pool[1] / pool[0] for pool in pools], [_came(pool) for pool in pools])


def _came(pool: tuple[float, float, float]) -> float:
    """The share to expect. Less a margin for few answers, and whoever once strayed would never be foreseen again."""
    number, said, came = pool
    return (came + _PRIOR * said / number) / (number + _PRIOR)
