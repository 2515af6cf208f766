"""Windows of series and the values that came after them, which networks are trained on."""

import math
from collections.abc import Sequence

from msgspec import Struct

from aliquot.learn.demand.networks import WINDOW, scale_of, scaled


class SeriesPart(Struct, frozen=True):
    """The values of a series from `begin` to `end`. Earlier ones are only looked back at, later ones are not."""

    values: list[float]
    begin: int
    end: int


class TrainingWindows(Struct, frozen=True):
    """Windows, and the values that came at each horizon after them. NaN where a series ended before."""

    inputs: list[list[float]]
    targets: list[list[float]]
    horizons: int


def training_windows(series: Sequence[SeriesPart], horizons: Sequence[int], most: int) -> TrainingWindows:
    """Return the windows whose values to come are in the parts, at most so many, spread evenly."""
    places = [(part, last) for part in series for last in range(max(part.begin, WINDOW) - 1, part.end - 1)]
    inputs, targets = [], []
    for part, last in places[:: max(1, -(-len(places) // most))]:
        window = part.values[last + 1 - WINDOW : last + 1]
        if not any(window):
            continue
        scale = scale_of(window)
        ahead = [part.values[last + steps] if last + steps < part.end else math.nan for steps in horizons]
        inputs.append(scaled(window, scale))
        targets.append(scaled(ahead, scale))
    return TrainingWindows(inputs, targets, len(horizons))
