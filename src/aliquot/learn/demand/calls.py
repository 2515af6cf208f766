"""Forecasts the calls of applications: the chance of a call in a step of time, and how many will run at once.

The chance is the hazard that the keep-alive policy `hazard` uses, too. The calls at once are a series of demand with
its candidates and intervals. Time comes with each call, so that the same code runs in a process and in virtual time.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from aliquot.core.events import DemandRow
from aliquot.core.provisioning.holds import MAX_ROWS
from aliquot.learn.demand.forecaster import MAX_SERIES, DemandForecaster
from aliquot.learn.demand.model import DemandModel
from aliquot.learn.demand.series import ScoredForecast
from aliquot.policies.keepalive.parts.call_hazard import CallHazard, CallHistory

HORIZONS = (1,)  # steps with calls ahead
MAX_IDLE_STEPS = 480  # without a call after which an application is forgotten
MIN_CHANCE = 0.001  # less likely calls are not told
TICKS_PER_STEP = 6  # forecasts are made so often
VALID_TICKS = 3
LATER_STEPS = 5  # steps after the current one whose chance is told, for starts that take long
MAX_LATE_STEPS = 2  # after which a call is not counted, since its time cannot be right
MIN_OBSERVED = 10  # with fewer steps with calls, as many at once are expected as there were

ApplicationKey = tuple[str, str]  # tenant and function


class ForecastObserver(Protocol):
    """Is told of forecasts whose value has come."""

    def demanded(
        self,
        key: ApplicationKey,
        at_s: float,
        value: float,
        last: float,
        model: str,
        made: Mapping[str, ScoredForecast],
    ) -> None:
        """Take the calls at once of a step, those of the last one, what served, and what each candidate had said."""
        ...

    def stepped(self, key: ApplicationKey, at_s: float, chance: float, *, called: bool) -> None:
        """Take the chance of a call in a step, and whether one came."""
        ...


class _KnownApplication:
    """The calls of one application."""

    __slots__ = ("at_once", "history", "lately", "later", "later_of", "offset_s")

    def __init__(self, now_s: float, step_s: float) -> None:
        self.offset_s = step_s / 2 - now_s  # so that regular calls stay away from the edges of steps
        self.history = CallHistory(0)
        self.at_once = 0  # most in the current step
        self.lately = 0  # most in the last step with calls
        self.later: tuple[float, ...] = ()  # chances of the steps that follow
        self.later_of: tuple[int, bool] | None = None  # the step for which they were computed, and if it had a call


class CallForecaster:
    """The applications of a server, with what is expected of each."""

    def __init__(
        self,
        step_s: float,
        model: DemandModel = DemandModel(),  # noqa: B008 - frozen
        observer: ForecastObserver | None = None,
    ) -> None:
        self.step_s = step_s
        self._observer = observer
        self._hazard = CallHazard()
        self._demand: DemandForecaster[ApplicationKey] = DemandForecaster(HORIZONS, "calls", model)
        self._known: dict[ApplicationKey, _KnownApplication] = {}

    @property
    def tick_s(self) -> float:
        return self.step_s / TICKS_PER_STEP

    @property
    def valid_s(self) -> float:
        return VALID_TICKS * self.tick_s

    def seen(self, key: ApplicationKey, at_s: float, at_once: int) -> None:
        """Learn that an application was called, and how many of its calls ran at once."""
        known = self._known.pop(key, None)
        if known is None:
            known = _KnownApplication(at_s, self.step_s)
            if len(self._known) >= MAX_SERIES:
                del self._known[next(iter(self._known))]
        self._known[key] = known  # the newest is last
        self._advance(key, known, at_s)
        if self._step(known, at_s) < known.history.step - MAX_LATE_STEPS:
            return  # the time of day has jumped
        known.history.called = True
        known.at_once = max(known.at_once, at_once)

    def advance(self, now_s: float) -> None:
        """Close the steps of all applications before this time."""
        for key, known in self._known.items():
            self._advance(key, known, now_s)

    def forecast(self, now_s: float) -> tuple[DemandRow, ...]:
        """Return what is expected of each application in its current step, the likeliest first."""
        rows: list[DemandRow] = []
        for key, known in list(self._known.items()):
            self._advance(key, known, now_s)
            if known.history.step - known.history.last > MAX_IDLE_STEPS and not known.history.called:
                del self._known[key]
            elif max((known.history.chance, *self._later(known))) >= MIN_CHANCE:
                rows.append(self._row(key, known, now_s))
        return tuple(sorted(rows, key=lambda row: (-row.chance, row.tenant, row.function))[:MAX_ROWS])

    def _row(self, key: ApplicationKey, known: _KnownApplication, now_s: float) -> DemandRow:
        row = self._demand_row(key, known)
        ends_s = min(self.step_s, max(0.0, (known.history.step + 1) * self.step_s - known.offset_s - now_s))
        later = self._later(known)
        # After a call in this step, another one is as likely as in the next step.
        chance = later[0] if known.history.called else row.chance
        return replace(row, chance=chance, ends_s=round(ends_s, 3), later=later)

    def _later(self, known: _KnownApplication) -> tuple[float, ...]:
        """Return the chances of the next steps. They change with the current step and its first call."""
        history = known.history
        of = history.step, history.called
        if known.later_of != of:
            steps = range(1, LATER_STEPS + 1)
            known.later_of = of
            known.later = tuple(round(self._hazard.later(history, number), 4) for number in steps)
        return known.later

    def _demand_row(self, key: ApplicationKey, known: _KnownApplication) -> DemandRow:
        outlook = self._demand.outlook(key)
        most = float(max(1, known.lately, known.at_once))
        if outlook is None:
            return DemandRow(*key, known.history.chance, self.step_s, 0.0, 1.0, most, known.at_once, "hazard")
        (band,), (model,) = outlook.bands, outlook.models
        high = max(1.0, band.high, most if self._demand.step_of(key) < MIN_OBSERVED else 0.0)
        middle, measured = min(band.middle, high), float(max(known.at_once, known.lately))
        return DemandRow(*key, known.history.chance, self.step_s, min(band.low, middle), middle, high, measured, model)

    def _step(self, known: _KnownApplication, at_s: float) -> int:
        return int((at_s + known.offset_s) / self.step_s)

    def _advance(self, key: ApplicationKey, known: _KnownApplication, now_s: float) -> None:
        """Close the steps before this time. A time that goes back changes nothing."""
        step = self._step(known, now_s)
        history = known.history
        if step <= history.step:
            return
        observer = self._observer
        if observer is not None and history.features:
            observer.stepped(key, now_s, history.chance, called=history.called)
        if known.at_once:  # how many run at once counts only where there are calls
            model = self._demand.model_of(key, HORIZONS[0])
            made = self._demand.observe(key, self._demand_step(key), float(known.at_once))
            if observer is not None:
                observer.demanded(key, now_s, known.at_once, known.lately, model, made.get(HORIZONS[0], {}))
            known.lately, known.at_once = known.at_once, 0
        self._hazard.advance(history, step, MAX_IDLE_STEPS)

    def _demand_step(self, key: ApplicationKey) -> int:
        return self._demand.step_of(key) + 1 if self._demand.outlook(key) is not None else 0
