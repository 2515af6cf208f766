"""Distributions of the gaps between calls, by shape and mean.

A distribution gives two samplers: from a random point in time to the next call, and from call to call. A random point
falls into long gaps more often than into short ones, and anywhere within the gap. A process that starts with the first
sampler has its mean rate from the beginning.
"""

from collections.abc import Callable
from math import gamma
from random import Random

Sampler = Callable[[Random], float]


def exponential_gaps(shape: float, mean_s: float) -> tuple[Sampler, Sampler]:
    """Return the exponential samplers, which are equal because the distribution is memoryless."""
    del shape

    def gap(random: Random) -> float:
        return random.expovariate(1 / mean_s)

    return gap, gap


def gamma_gaps(shape: float, mean_s: float) -> tuple[Sampler, Sampler]:
    scale = mean_s / shape
    return (
        lambda random: random.random() * random.gammavariate(shape + 1, scale),
        lambda random: random.gammavariate(shape, scale),
    )


def weibull_gaps(shape: float, mean_s: float) -> tuple[Sampler, Sampler]:
    scale = mean_s / gamma(1 + 1 / shape)
    return (
        lambda random: float(random.random() * scale * random.gammavariate(1 + 1 / shape, 1) ** (1 / shape)),
        lambda random: random.weibullvariate(scale, shape),
    )


GAP_DISTRIBUTIONS: dict[str, Callable[[float, float], tuple[Sampler, Sampler]]] = {
    "": exponential_gaps,
    "Gamma": gamma_gaps,
    "Weibull": weibull_gaps,
}
