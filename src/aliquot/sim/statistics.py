"""Summary statistics: mean, quantiles, variance, and the rounding of reports."""

from collections.abc import Iterable, Sequence
from math import fsum

from msgspec import Struct

from aliquot.core.clock import DECIMALS


class Summary(Struct, frozen=True):
    """Mean and quantiles of some values. All fields are None without values."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def summarise(values: Iterable[float]) -> Summary:
    ordered = sorted(values)
    if not ordered:
        return Summary()
    mean = rounded(fsum(ordered) / len(ordered))
    return Summary(mean, *(rounded(quantile(ordered, q)) for q in (0.5, 0.95, 0.99, 1)))


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the linearly interpolated quantile, as numpy and spreadsheets define it."""
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def variance(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    mean = fsum(values) / len(values)
    return rounded(fsum((value - mean) ** 2 for value in values) / len(values))


def rounded(value: float) -> float:
    """Round to nine decimals for a report, and return whole numbers as int."""
    value = round(value, DECIMALS)
    return int(value) if value == int(value) else value
