"""The candidates: simple forecasts of a series, each of the value so many steps ahead. They run side by side."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from aliquot.learn.demand.model import DemandNetwork

MEAN_STEPS = 30
LEVEL_RATE, TREND_RATE, DAMPING = 0.3, 0.05, 0.9
PERIODS = (5, 10, 15, 30, 60)
MAX_PERIOD = max(PERIODS)
PERIOD_MEMORY = 0.02  # by which errors of a period are smoothed


class Candidate(Protocol):
    """A forecast that follows a series."""

    def learn(self, value: float) -> None:
        """Add the next value of the series."""
        ...

    def ahead(self, steps: int) -> float:
        """Return the value that is expected so many steps after the last one."""
        ...


class Last:
    """The last value."""

    def __init__(self) -> None:
        self._value = 0.0

    def learn(self, value: float) -> None:
        self._value = value

    def ahead(self, steps: int) -> float:
        return self._value


class Mean:
    """The mean of the last values."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=MEAN_STEPS)

    def learn(self, value: float) -> None:
        self._values.append(value)

    def ahead(self, steps: int) -> float:
        return sum(self._values) / len(self._values) if self._values else 0.0


class Smoothed:
    """Exponential smoothing with a trend that is damped (Gardner and McKenzie, 1985)."""

    def __init__(self) -> None:
        self._level: float | None = None
        self._trend = 0.0

    def learn(self, value: float) -> None:
        if self._level is None:
            self._level = value
            return
        before = self._level
        expected = before + DAMPING * self._trend
        self._level = expected + LEVEL_RATE * (value - expected)
        self._trend = DAMPING * self._trend + TREND_RATE * (self._level - before - DAMPING * self._trend)

    def ahead(self, steps: int) -> float:
        if self._level is None:
            return 0.0
        damped = DAMPING * (1 - DAMPING**steps) / (1 - DAMPING)
        return max(0.0, self._level + damped * self._trend)


class Seasonal:
    """The value one period before, with the period that has the least error lately."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=MAX_PERIOD)
        self._errors = dict.fromkeys(PERIODS, 0.0)

    def learn(self, value: float) -> None:
        values = self._values
        for period in PERIODS:
            before = values[-period] if len(values) >= period else 0.0
            self._errors[period] += PERIOD_MEMORY * (abs(value - before) - self._errors[period])
        values.append(value)

    def ahead(self, steps: int) -> float:
        period = min(PERIODS, key=self._errors.__getitem__)
        back = period - (steps - 1) % period
        return self._values[-back] if len(self._values) >= back else 0.0


class Median:
    """The median of the last values, which bursts do not move."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=MEAN_STEPS)

    def learn(self, value: float) -> None:
        self._values.append(value)

    def ahead(self, steps: int) -> float:
        ordered = sorted(self._values)
        return ordered[len(ordered) // 2] if ordered else 0.0


class NetworkCandidate:
    """The forecast of a trained network, computed once for all horizons. The last value, until its window is full."""

    def __init__(self, network: DemandNetwork) -> None:
        self._network = network
        self._values: deque[float] = deque(maxlen=network.window)
        self._forecast: Mapping[int, float] | None = None

    def learn(self, value: float) -> None:
        self._values.append(value)
        self._forecast = None

    def ahead(self, steps: int) -> float:
        values = self._values
        if len(values) < self._network.window or not any(values):
            return values[-1] if values else 0.0
        if self._forecast is None:
            self._forecast = self._network.forecast(tuple(values))
        return self._forecast[steps]


CANDIDATES: dict[str, Callable[[], Candidate]] = {
    "last": Last,
    "mean": Mean,
    "median": Median,
    "smoothed": Smoothed,
    "seasonal": Seasonal,
}
BLEND = "blend"  # of all candidates, by their losses
