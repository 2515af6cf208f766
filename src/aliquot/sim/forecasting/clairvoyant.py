"""Forecasts from the workload itself: an upper bound for every forecaster."""

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

from aliquot.core.events import DemandRow
from aliquot.core.model import FunctionSpec
from aliquot.core.provisioning.holds import MAX_ROWS
from aliquot.learn.demand.calls import TICKS_PER_STEP, VALID_TICKS, ApplicationKey
from aliquot.sim.arrivals import Arrival, Workload

NAME = "clairvoyant"


class ClairvoyantForecaster:
    """Knows which functions are called in the next step, and how many of their calls will run at once."""

    def __init__(self, workload: Workload, functions: dict[str, FunctionSpec], step_s: float) -> None:
        self.step_s = step_s
        self._functions = functions
        self._rest = iter(workload)
        self._next = next(self._rest, None)
        self._known: list[Arrival] = []  # from the last forecast on, to the end of its step

    @property
    def tick_s(self) -> float:
        return self.step_s / TICKS_PER_STEP

    @property
    def valid_s(self) -> float:
        return VALID_TICKS * self.tick_s

    def seen(self, key: ApplicationKey, at_s: float, at_once: int) -> None:
        """Learn nothing, since the workload is known."""

    def forecast(self, now_s: float) -> tuple[DemandRow, ...]:
        """Return the functions that are called within a step, those with the next call first."""
        until_s = now_s + self.step_s
        self._known = [arrival for arrival in self._known if arrival.time_s >= now_s]
        self._known += self._arrivals(until_s)
        most: dict[ApplicationKey, int] = {}
        ends: dict[ApplicationKey, list[float]] = {}
        for arrival in self._known:
            key = (arrival.tenant, arrival.function)
            running = ends.setdefault(key, [])
            while running and running[0] <= arrival.time_s:
                heappop(running)
            spec = self._functions.get(arrival.function)
            typical_s = inf if spec is None or spec.times.run_s is None else spec.times.run_s
            heappush(running, arrival.time_s + (typical_s if arrival.run_s is None else arrival.run_s))
            most[key] = max(most.get(key, 0), len(running))
        rows = [DemandRow(*key, 1.0, self.step_s, number, number, number, number, NAME) for key, number in most.items()]
        return tuple(rows[:MAX_ROWS])

    def _arrivals(self, until_s: float) -> Iterator[Arrival]:
        while self._next is not None and self._next.time_s < until_s:
            yield self._next
            self._next = next(self._rest, None)
