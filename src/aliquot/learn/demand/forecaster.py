"""Forecasts the demand of many applications at one grain, and chooses a candidate for each."""

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from aliquot.learn.demand.candidates import BLEND
from aliquot.learn.demand.model import DemandModel
from aliquot.learn.demand.series import MEAN_MEMORY, Band, DemandSeries, ScoredForecast

MAX_SERIES = 10_000  # the one that was seen longest ago is forgotten first
MAX_FILLED_STEPS = 240  # of a pause; longer ones count as so long
MIN_MEAN = 1e-3
STEPS_PER_CLASS = 16  # a series is counted in its class once in so many values

Key = TypeVar("Key", bound=Hashable)


class DemandOutlook(Struct, frozen=True):
    """The demand that is expected of one application at each horizon, and the candidates that say so."""

    models: tuple[str, ...]
    bands: tuple[Band, ...]


class DemandForecaster(Generic[Key]):
    """The series of all applications. Steps without a value count as 0."""

    def __init__(self, horizons: Sequence[int], seed: str = "demand", model: DemandModel = DemandModel()) -> None:  # noqa: B008 - frozen
        self._horizons = tuple(horizons)
        self._seed = seed
        self.model = model
        self._series: dict[Key, DemandSeries] = {}
        self._steps: dict[Key, int] = {}  # of the last value
        # Losses relative to the mean, by class and horizon, and by candidate.
        self._class_losses: dict[tuple[str, int], dict[str, float]] = {}

    def observe(self, key: Key, step: int, value: float) -> dict[int, dict[str, ScoredForecast]]:
        """Add the value of a step, and return the forecasts that were made for it, by horizon and candidate.

        An earlier step than the last one is ignored, because the time of day may jump.
        """
        series = self._series.pop(key, None)
        if series is None:
            series = DemandSeries(self._horizons, f"{self._seed}/{key}", self.model)
            self._steps[key] = step - 1
            if len(self._series) >= MAX_SERIES:
                oldest = next(iter(self._series))
                del self._series[oldest], self._steps[oldest]
        self._series[key] = series  # the newest is last
        if step <= self._steps[key]:
            return {}
        for _ in range(min(step - self._steps[key] - 1, MAX_FILLED_STEPS)):
            self._learn(series, 0.0)
        self._steps[key] = step
        return self._learn(series, value)

    def model_of(self, key: Key, steps: int) -> str:
        """Return the candidate that serves an application at a horizon: its own choice, or that of its class."""
        if self.model.only:
            return self.model.only
        series = self._series.get(key)
        if series is None:
            return BLEND
        if steps in series.serving:
            return series.serving[steps]
        losses = self._class_losses.get((series.kind, steps))
        return min(losses, key=losses.__getitem__) if losses else BLEND

    def outlook(self, key: Key) -> DemandOutlook | None:
        """Return the newest forecast of an application, or None if it was never seen."""
        series = self._series.get(key)
        if series is None:
            return None
        models = tuple(self.model_of(key, steps) for steps in self._horizons)
        return DemandOutlook(models, tuple(map(series.band, models, self._horizons)))

    def keys(self) -> list[Key]:
        return list(self._series)

    def step_of(self, key: Key) -> int:
        return self._steps[key]

    def _learn(self, series: DemandSeries, value: float) -> dict[int, dict[str, ScoredForecast]]:
        made = series.learn(value)
        if series.serving and series.values % STEPS_PER_CLASS == 0:  # only what has enough scores speaks for its class
            kind, scale = series.kind, max(series.mean, MIN_MEAN)
            for steps in series.serving:
                known = self._class_losses.setdefault((kind, steps), {})
                for name, loss in series.losses(steps).items():
                    relative = loss / scale
                    known[name] = known.get(name, relative) + MEAN_MEMORY * (relative - known.get(name, relative))
        return made
