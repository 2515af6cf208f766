"""Laws of the gaps between calls, by shape and mean.

A law gives two draws: from a random moment to the next call, and from call to call. A random moment falls into a gap
the more likely the longer it is, and anywhere in it. Begun so, a process has its rate from the start.
"""

from collections.abc import Callable
from math import gamma
from random import Random

Draw = Callable[[Random], float]


def exponential_gaps(shape: float, mean_s: float) -> tuple[Draw, Draw]:
    """Memoryless: both are the same."""
    del shape

    def gap(random: Random) -> float:
        return random.expovariate(1 / mean_s)

    return gap, gap


def gamma_gaps(shape: float, mean_s: float) -> tuple[Draw, Draw]:
    scale = mean_s / shape
    return (
        lambda random: random.random() * random.gammavariate(shape + 1, scale),
        lambda random: random.gammavariate(shape, scale),
    )


def weibull_gaps(shape: float, mean_s: float) -> tuple[Draw, Draw]:
    scale = mean_s / gamma(1 + 1 / shape)
    return (
        lambda random: float(random.random() * scale * random.gammavariate(1 + 1 / shape, 1) ** (1 / shape)),
        lambda random: random.weibullvariate(scale, shape),
    )


GAP_DISTRIBUTIONS: dict[str, Callable[[float, float], tuple[Draw, Draw]]] = {
    "": exponential_gaps,
    "Gamma": gamma_gaps,
    "Weibull": weibull_gaps,
}
