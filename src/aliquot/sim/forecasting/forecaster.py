"""The forecaster of a simulation: it sees the calls that run, and its forecasts are events at its ticks."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeAlias

from msgspec import Struct

from aliquot.core.clock import after
from aliquot.core.commands import Command, Complete, Dispatch, Fail
from aliquot.core.errors import InputError
from aliquot.core.events import DemandForecast, DemandRow
from aliquot.core.model import FunctionSpec
from aliquot.learn.demand.calls import ApplicationKey, CallForecaster
from aliquot.learn.demand.model import DemandModel
from aliquot.sim.arrivals import Workload
from aliquot.sim.event_queue import EventQueue
from aliquot.sim.forecasting.clairvoyant import NAME as CLAIRVOYANT
from aliquot.sim.forecasting.clairvoyant import ClairvoyantForecaster
from aliquot.sim.recorder import SimulatedCall

NONE, COUNTS = "none", "counts"

Performer: TypeAlias = Callable[..., None]  # of a command at a time


class ForecastSettings(Struct, frozen=True):
    """The forecaster of a simulation: none, the live platform's, or one that knows the workload."""

    source: str = NONE
    model: DemandModel = DemandModel()  # for the live platform's
    step_s: float | None = None  # for which the model was made; None for any


class ForecastSource(Protocol):
    """Learns from calls and forecasts them."""

    @property
    def tick_s(self) -> float: ...
    @property
    def valid_s(self) -> float: ...
    def seen(self, key: ApplicationKey, at_s: float, at_once: int) -> None: ...
    def forecast(self, now_s: float) -> tuple[DemandRow, ...]: ...


def make_source(
    settings: ForecastSettings, step_s: float | None, workload: Workload, functions: dict[str, FunctionSpec]
) -> ForecastSource | None:
    """Return the source of forecasts, or None if nothing forecasts or the provisioning policy wants no forecasts.

    Raises `InputError` if the policy's steps are not those of the model.
    """
    if settings.source == NONE or step_s is None:
        return None
    if settings.step_s not in {None, step_s}:
        raise InputError(
            f"--forecasting: {settings.source} forecasts steps of {settings.step_s:g} s, and the provisioning policy "
            f"wants {step_s:g} s; take --set forecast.step_s={settings.step_s:g}"
        )
    if settings.source == CLAIRVOYANT:
        return ClairvoyantForecaster(workload, functions, step_s)
    return CallForecaster(step_s, settings.model)


def with_forecasts(
    performers: dict[type[Command], Performer],
    source: ForecastSource | None,
    queue: EventQueue,
    calls: Mapping[str, SimulatedCall],
    last_s: float,
) -> dict[type[Command], Performer]:
    """Return the performers of commands such that a source sees the calls that run, and put forecasts into the queue.

    `calls` are those that have not ended, and `last_s` is the time of the last arrival. Without a source nothing is
    changed.
    """
    if source is None:
        return performers
    forecaster = SimulatedForecaster(source, queue, calls, last_s)
    watched: dict[type[Command], Performer] = {
        Dispatch: partial(forecaster.dispatch, performers[Dispatch]),
        Complete: partial(forecaster.end, performers[Complete]),
        Fail: partial(forecaster.end, performers[Fail]),
    }
    return {**performers, **watched}


class SimulatedForecaster:
    """Passes calls to a source of forecasts, and puts its forecasts into the queue, until the last arrival."""

    def __init__(
        self, source: ForecastSource, queue: EventQueue, calls: Mapping[str, SimulatedCall], last_s: float
    ) -> None:
        self._source = source
        self._queue = queue
        self._calls = calls
        self._last_s = last_s
        self._running: dict[str, ApplicationKey] = {}  # by invocation
        self._at_once: dict[ApplicationKey, int] = {}
        queue.add(after(0, source.tick_s), self._tick)

    def dispatch(self, perform: Performer, command: Dispatch, now: float) -> None:
        """Tell the source of a call that runs. One that is dispatched again, because its node was lost, counts once."""
        if command.invocation not in self._running:
            arrival = self._calls[command.invocation].arrival
            key = self._running[command.invocation] = (arrival.tenant, arrival.function)
            self._at_once[key] = self._at_once.get(key, 0) + 1
            self._source.seen(key, now, self._at_once[key])
        perform(command, now)

    def end(self, perform: Performer, command: Complete | Fail, now: float) -> None:
        key = self._running.pop(command.invocation, None)
        if key is not None:
            self._at_once[key] -= 1
        perform(command, now)

    def _tick(self, now: float) -> None:
        rows = self._source.forecast(now)
        if rows:
            self._queue.add(now, DemandForecast(rows, self._source.valid_s))
        if now < self._last_s:
            self._queue.add(after(now, self._source.tick_s), self._tick)
