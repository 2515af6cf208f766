"""The forecaster with the version that serves: loaded when another one is chosen, and watched for drift."""

from pathlib import Path

from aliquot.core.errors import InputError
from aliquot.core.events import DemandForecast
from aliquot.learn.demand.calls import CallForecaster
from aliquot.learn.demand.drift import DriftSettings, DriftWatch
from aliquot.learn.demand.model import DemandModel
from aliquot.learn.demand.versions import CHOSEN, open_version, registry_of
from aliquot.learn.registry import BrokenVersionError, ServingState
from aliquot.live.forecasting.messages import CallsSeen, ForecasterReport, ForecasterState
from aliquot.live.profile.reading import read_profiles
from aliquot.live.profile.records import SECOND_S, ProfileRow

MAX_HISTORY_S = 86_400  # of profiles that are read at the start


class ServedForecaster:
    """Forecasts with the version that the registry names, or without one. One that cannot be read never serves."""

    def __init__(self, data: Path, step_s: float, drift: DriftSettings) -> None:
        self._data = data
        self._step_s = step_s
        self._drift = drift
        self._registry = registry_of(data)
        self._state = ForecasterState()
        self._begin(DemandModel(), 0, 0.0)
        self._serving: ServingState | None = None
        if not self._refresh():
            self._learn()

    @property
    def tick_s(self) -> float:
        return self._forecaster.tick_s

    def seen(self, calls: list[CallsSeen]) -> None:
        for call in calls:
            self._forecaster.seen((call.tenant, call.function), call.at_s, call.at_once)

    def report(self, now_s: float) -> ForecasterReport:
        """Return what is expected now, with the version that is chosen now."""
        self._refresh()
        rows = self._forecaster.forecast(now_s)
        forecast = DemandForecast(rows, self._forecaster.valid_s) if rows else None
        self._state = ForecasterState(self._state.version, self._state.error, self._watch.watched)
        return ForecasterReport(self._state, forecast, self._watch.reason())

    def _refresh(self) -> bool:
        """Load the version that is chosen, if it has changed, and return whether another one serves now."""
        serving = self._registry.serving()
        if serving == self._serving:
            return False
        self._serving = serving
        if not serving.version:
            return False
        try:
            model = open_version(self._registry, serving.version, serving.predictor, step_s=self._step_s)
        except BrokenVersionError as error:
            self._state = ForecasterState(self._state.version, str(error), self._watch.watched)
            return False
        card = self._registry.manifest(serving.version)
        scores = card.scores.get(model.only or CHOSEN)
        self._begin(model, serving.version, 0.0 if scores is None else scores.loss)
        self._learn()
        return True

    def _begin(self, model: DemandModel, version: int, loss: float) -> None:
        newest_s = max((card.newest_s for card in self._registry.versions()), default=0.0)
        self._watch = DriftWatch(self._drift, version, loss, newest_s)
        self._forecaster = CallForecaster(self._step_s, model, self._watch)
        self._state = ForecasterState(version)

    def _learn(self) -> None:
        """Learn from the calls of the last day that the server has recorded."""
        self.seen(
            [CallsSeen(*row.key, float(row.t_s), row.at_once) for row in recorded_calls(self._data, MAX_HISTORY_S)]
        )


def recorded_calls(data: Path, last_s: float | None) -> list[ProfileRow]:
    """Return the seconds with calls that a server has recorded, in the order of time."""
    try:
        found = read_profiles(data, SECOND_S, last_s)
    except (InputError, OSError):
        return []  # there are none yet
    return sorted((row for rows in found.values() for row in rows if row.calls), key=lambda row: row.t_s)
