"""One series of demand: its candidates with their intervals and losses, and the candidate that serves."""

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random

from msgspec import Struct

from aliquot.learn.demand.candidates import BLEND, CANDIDATES, Candidate, NetworkCandidate
from aliquot.learn.demand.intervals import AdaptiveInterval
from aliquot.learn.demand.model import DemandModel

QUANTILES = (0.05, 0.5, 0.95)
MEAN_MEMORY = 0.005  # by which the mean and the like are smoothed
BEYOND_PEAK, PEAK_MEMORY = 2.0, 0.995  # no band reaches above so many times the largest value lately
MIN_OWN_SCORES = 50  # before, the choice of the class serves
HOLD_STEPS = 3  # that another candidate must be better in a row
MIN_LOSS = 1e-6


class Band(Struct, frozen=True, array_like=True, gc=False):
    """The quantiles of demand so many steps ahead."""

    steps: int
    low: float  # 5 %
    middle: float
    high: float  # 95 %


def pinball(value: float, band: Band) -> float:
    """Return the mean pinball loss of the three quantiles."""
    loss = 0.0
    for part, quantile in zip(QUANTILES, (band.low, band.middle, band.high), strict=True):
        loss += (value - quantile) * part if value >= quantile else (quantile - value) * (1 - part)
    return loss / len(QUANTILES)


class ScoredForecast(Struct, frozen=True, gc=False):
    """A forecast whose value has come."""

    band: Band
    outside: bool | None  # whether the value was outside, ties by draw; None if the interval had too few errors


class _Scored:
    """A candidate at one horizon: forecasts that are not due yet, errors, interval and loss."""

    __slots__ = ("_memory", "due", "interval", "loss", "scores")

    def __init__(self, random: Random, memory: float) -> None:
        self.due: deque[Band] = deque()
        self.interval = AdaptiveInterval(random)
        self.loss = 0.0
        self.scores = 0
        self._memory = memory

    def band(self, steps: int, forecast: float, most: float) -> Band:
        low, high = self.interval.around(forecast, most)
        return Band(steps, min(low, forecast), forecast, max(high, forecast))

    def score(self, value: float) -> ScoredForecast:
        """Learn from the value for which the oldest forecast was made, and return that forecast."""
        band = self.due.popleft()
        outside = self.interval.learn(value, band.middle)
        self.scores += 1
        gain = max(self._memory, 1 / self.scores)
        self.loss += gain * (pinball(value, band) - self.loss)
        return ScoredForecast(band, outside)


class DemandSeries:
    """The forecasts of one series at several horizons, in steps. Each value costs the same, however long it is."""

    def __init__(
        self,
        horizons: Sequence[int],
        seed: str,
        model: DemandModel = DemandModel(),  # noqa: B008 - frozen
    ) -> None:
        random = Random(seed)
        self.horizons = tuple(horizons)
        self._choice = model.choice
        self.candidates: dict[str, Candidate] = {name: make() for name, make in CANDIDATES.items()}
        self.candidates |= {name: NetworkCandidate(network) for name, network in model.networks.items()}
        memory = model.choice.memory
        self._scored = {
            name: {steps: _Scored(random, memory) for steps in horizons} for name in (*self.candidates, BLEND)
        }
        self.serving: dict[int, str] = {}  # its own choice by horizon; without one it has too few scores
        self._better: dict[int, tuple[str, int]] = {}  # a candidate that would be better, and for how many steps
        self.values = 0
        self.mean = 0.0  # lately
        self._square = 0.0
        self.peak = 0.0  # largest value lately
        self.idle_part = 0.0  # part of the steps without demand lately

    def learn(self, value: float) -> dict[int, dict[str, ScoredForecast]]:
        """Add the next value. Return the forecasts that were made for it, by horizon and candidate."""
        made: dict[int, dict[str, ScoredForecast]] = {}
        for name, by_steps in self._scored.items():
            for steps, scored in by_steps.items():
                if len(scored.due) >= steps:
                    made.setdefault(steps, {})[name] = scored.score(value)
        self.values += 1
        gain = max(MEAN_MEMORY, 1 / self.values)
        self.mean += gain * (value - self.mean)
        self._square += gain * (value * value - self._square)
        self.peak = max(value, PEAK_MEMORY * self.peak)
        self.idle_part += gain * ((value == 0) - self.idle_part)
        for candidate in self.candidates.values():
            candidate.learn(value)
        for steps in self.horizons:
            losses = self.losses(steps)
            self._choose(steps, losses)
            for name, forecast in self._forecasts(steps, losses).items():
                scored = self._scored[name][steps]
                scored.due.append(scored.band(steps, forecast, BEYOND_PEAK * self.peak))
        return made

    def band(self, model: str, steps: int) -> Band:
        """Return the newest forecast of a candidate at a horizon."""
        due = self._scored[model][steps].due
        return due[-1] if due else Band(steps, 0, 0, 0)

    def losses(self, steps: int) -> dict[str, float]:
        """Return the loss of each candidate lately at a horizon."""
        return {name: by_steps[steps].loss for name, by_steps in self._scored.items()}

    @property
    def scores(self) -> int:
        return self._scored[BLEND][self.horizons[0]].scores

    @property
    def kind(self) -> str:
        """Return the class of the series, whose choice serves while it has too few scores of its own."""
        if self.idle_part > 0.9:  # noqa: PLR2004 - one step in ten has demand
            return "rare"
        losses = self.losses(self.horizons[0])
        if self.scores and losses["seasonal"] < 0.5 * losses["mean"]:
            return "periodic"
        variance = max(0.0, self._square - self.mean * self.mean)
        return "bursty" if variance > 4 * self.mean * self.mean else "steady"

    def _forecasts(self, steps: int, losses: Mapping[str, float]) -> dict[str, float]:
        forecasts = {name: candidate.ahead(steps) for name, candidate in self.candidates.items()}
        power = self._choice.blend_power
        weights = {name: 1 / max(losses[name], MIN_LOSS) ** power for name in forecasts}
        total = sum(weights.values())
        forecasts[BLEND] = sum(weights[name] * value for name, value in forecasts.items()) / total
        return forecasts

    def _choose(self, steps: int, losses: Mapping[str, float]) -> None:
        """Let another candidate serve if it was clearly better for some steps in a row."""
        if self._scored[BLEND][steps].scores < MIN_OWN_SCORES:
            return
        best = min(losses, key=losses.__getitem__)
        serving = self.serving.setdefault(steps, best)
        if losses[best] >= self._choice.worth * losses[serving]:
            self._better.pop(steps, None)
            return
        name, times = self._better.get(steps, ("", 0))
        self._better[steps] = (best, times + 1 if name == best else 1)
        if self._better[steps][1] >= HOLD_STEPS:
            self.serving[steps] = best
