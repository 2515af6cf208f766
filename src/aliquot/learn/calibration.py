"""Calibrate probabilities by how often predicted files were opened in held-back sessions."""

from bisect import bisect_right
from collections.abc import Iterable
from math import sqrt

from msgspec import Struct

_EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_MARGIN_ERRORS = 0.5  # standard errors that are subtracted; with 1, one who strays now and then is foreseen no more
_PRIOR = 8.0  # weight of the predictor's own probability, in answers


class Calibration(Struct, frozen=True, array_like=True):
    """A piecewise linear function from predicted to observed probabilities. Without points it is the identity."""

    predicted: list[float] = []
    observed: list[float] = []

    def __call__(self, probability: float) -> float:
        if not self.predicted:
            return probability
        index = bisect_right(self.predicted, probability)
        if index == 0:
            return self.observed[0] * (probability / self.predicted[0] if self.predicted[0] else 1.0)
        if index == len(self.predicted):
            return self.observed[-1]
        low, high = self.predicted[index - 1], self.predicted[index]
        part = (probability - low) / (high - low)
        return self.observed[index - 1] + part * (self.observed[index] - self.observed[index - 1])


def calibrate(answers: Iterable[tuple[float, bool]], sessions: int | None = None) -> Calibration:
    """Fit a calibration to predicted probabilities and whether the file was opened. It is monotonic.

    The answers of one session resemble each other. With the number of `sessions` that they come from, half a standard
    error of so many observations is subtracted. So only very likely files are told after few sessions.
    """
    numbers = [0] * len(_EDGES)
    sums = [0.0] * len(_EDGES)
    hits = [0] * len(_EDGES)
    for probability, was_opened in answers:
        index = bisect_right(_EDGES, probability) - 1
        numbers[index] += 1
        sums[index] += probability
        hits[index] += was_opened
    # Pool adjacent violators: neighbours that would decrease are merged.
    pools: list[tuple[float, float, float]] = []  # answers, sum of predictions, number of opened files
    for number, predicted, opened in zip(numbers, sums, hits, strict=True):
        if not number:
            continue
        pool = (float(number), predicted, float(opened))
        while pools and _expected_share(pools[-1]) >= _expected_share(pool):
            last = pools.pop()
            pool = (pool[0] + last[0], pool[1] + last[1], pool[2] + last[2])
        pools.append(pool)
    observed: list[float] = []
    for share in map(_expected_share, pools):
        margin = 0.0 if sessions is None else _MARGIN_ERRORS * sqrt(share * (1 - share) / max(1, sessions))
        observed.append(max(observed[-1] if observed else 0.0, share - min(margin, share / 2)))
    return Calibration([pool[1] / pool[0] for pool in pools], observed)


def _expected_share(pool: tuple[float, float, float]) -> float:
    """Return the expected share, with the prediction as prior.

    A pessimistic margin for few answers would keep a file that was missed once from being predicted again.
    """
    number, predicted, opened = pool
    return (opened + _PRIOR * predicted / number) / (number + _PRIOR)
