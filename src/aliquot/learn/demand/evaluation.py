"""Scores of forecasters on rows that they had not seen, by forecasting them one after the other."""

from collections.abc import Mapping, Sequence
from math import log

from msgspec import Struct

from aliquot.learn.demand.calls import ApplicationKey, CallForecaster
from aliquot.learn.demand.model import DemandModel
from aliquot.learn.demand.series import ScoredForecast, pinball
from aliquot.learn.demand.versions import CHOSEN, ChanceScore, DemandScore

MIN_CHANCE = 1e-6
LIKELY = 0.5  # chance from which on a call is said to come


class CallRow(Struct, frozen=True, array_like=True, gc=False):
    """A call of an application, and how many of its calls ran at once."""

    tenant: str
    function: str
    at_s: float
    at_once: int


class _Hits:
    """The counts of an event that is said to come or not."""

    def __init__(self) -> None:
        self.right = self.false = self.missed = self.left_out = 0

    def add(self, *, said: bool, came: bool) -> None:
        if said:
            self.right, self.false = self.right + came, self.false + (not came)
        else:
            self.missed, self.left_out = self.missed + came, self.left_out + (not came)

    def figures(self) -> dict[str, float]:
        total = max(1, self.right + self.false + self.missed + self.left_out)
        precision = self.right / max(1, self.right + self.false)
        recall = self.right / max(1, self.right + self.missed)
        return {
            "event_rate": (self.right + self.missed) / total,
            "accuracy": (self.right + self.left_out) / total,
            "precision": precision,
            "recall": recall,
            "f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        }


class _DemandSums:
    """The sums of one forecaster."""

    def __init__(self) -> None:
        self.rows = self.inside = self.told = 0
        self.loss = self.error = self.last_error = self.width = self.values = 0.0
        self.more = _Hits()

    def add(self, scored: ScoredForecast, value: float, last: float) -> None:
        band = scored.band
        self.rows += 1
        self.values += value
        self.loss += 2 * pinball(value, band)
        self.error += abs(value - band.middle)
        self.last_error += abs(value - last)
        self.width += band.high - band.low
        if scored.outside is not None:
            self.told += 1
            self.inside += not scored.outside
        self.more.add(said=band.middle > last, came=value > last)

    def score(self) -> DemandScore:
        values = max(self.values, 1.0)
        return DemandScore(
            self.rows,
            self.loss / values,
            self.error / self.last_error if self.last_error else 0.0,
            self.inside / self.told if self.told else 0.0,
            self.width / values,
            **self.more.figures(),
        )


class Evaluation:
    """Observes a forecaster, and scores what it says from a time on."""

    def __init__(self, since_s: float, until_s: float) -> None:
        self._since_s = since_s
        self._until_s = until_s
        self._sums: dict[str, _DemandSums] = {}
        self._calls = _Hits()
        self._log_loss = 0.0
        self._steps = 0

    def demanded(
        self,
        key: ApplicationKey,
        at_s: float,
        value: float,
        last: float,
        model: str,
        made: Mapping[str, ScoredForecast],
    ) -> None:
        if not self._since_s < at_s <= self._until_s:
            return
        for name, scored in made.items():
            self._sums.setdefault(name, _DemandSums()).add(scored, value, last)
        if model in made:
            self._sums.setdefault(CHOSEN, _DemandSums()).add(made[model], value, last)

    def stepped(self, key: ApplicationKey, at_s: float, chance: float, *, called: bool) -> None:
        if self._since_s < at_s <= self._until_s:
            self._steps += 1
            self._log_loss -= log(max(MIN_CHANCE, chance if called else 1 - chance))
            self._calls.add(said=chance >= LIKELY, came=called)

    @property
    def scores(self) -> dict[str, DemandScore]:
        return {name: sums.score() for name, sums in self._sums.items()}

    @property
    def chance(self) -> ChanceScore:
        return ChanceScore(self._steps, self._log_loss / max(1, self._steps), **self._calls.figures())


def evaluate(rows: Sequence[CallRow], model: DemandModel, step_s: float, borders: Sequence[float]) -> list[Evaluation]:
    """Forecast rows in their order, and score those after each border, up to the next one."""
    parts = [Evaluation(since, until) for since, until in zip(borders, [*borders[1:], float("inf")], strict=True)]
    forecaster = CallForecaster(step_s, model, _Several(parts))
    next_s = borders[0]
    for row in rows:
        while next_s <= row.at_s:  # step by step, so that steps without calls are scored, too
            forecaster.advance(next_s)
            next_s = max(next_s + step_s, row.at_s - MAX_PAUSE_STEPS * step_s)
        forecaster.seen((row.tenant, row.function), row.at_s, row.at_once)
    return parts


MAX_PAUSE_STEPS = 480  # of a longer time without any call only so many steps are scored


class _Several:
    """Passes forecasts on to several evaluations."""

    def __init__(self, parts: Sequence[Evaluation]) -> None:
        self._parts = parts

    def demanded(
        self,
        key: ApplicationKey,
        at_s: float,
        value: float,
        last: float,
        model: str,
        made: Mapping[str, ScoredForecast],
    ) -> None:
        for part in self._parts:
            part.demanded(key, at_s, value, last, model, made)

    def stepped(self, key: ApplicationKey, at_s: float, chance: float, *, called: bool) -> None:
        for part in self._parts:
            part.stepped(key, at_s, chance, called=called)
