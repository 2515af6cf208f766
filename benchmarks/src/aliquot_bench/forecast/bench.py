"""Measure keep-alive on two samples of Azure Functions, forecasts of demand on five sets, and both on real servers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from aliquot.learn.demand.model import DemandModel
from aliquot.learn.demand.stage_results import CHOICES
from aliquot.sim.importers.files import check_files
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot_bench.base import BenchRequest
from aliquot_bench.forecast.bursts import measure_bursts
from aliquot_bench.forecast.curves import (
    FEW_RUNS,
    FIXED,
    HAZARD,
    HYBRID,
    QUICK_RUNS,
    RANGES_H,
    RUNS,
    runs,
    starts_at,
    waited_at,
)
from aliquot_bench.forecast.demand import (
    NEEDED,
    SETS,
    DemandResult,
    choose_settings,
    demand_goals,
    demand_table,
    measure_demand,
    read_set,
)
from aliquot_bench.forecast.measuring import KeepAliveResult
from aliquot_bench.forecast.moves import measure_moves
from aliquot_bench.forecast.overhead import measure_overhead
from aliquot_bench.forecast.workload import SAMPLES, MinuteWorkload, read_sample, sample_files
from aliquot_bench.result import PERCENT, BenchResult, Goal, ResultTable, at_least, at_most

PUBLISHED = f"{RANGES_H[-1]} h"  # the range of the hybrid histogram in its paper
FEWER = {"500 functions, 8 h": 45, "1000 functions, 24 h": 35}  # % of cold starts at the published one's idle memory
MAX_STARTS_RATIO = 1.8
FIXED_MINUTES = ("5 min", "10 min", "15 min", "20 min")  # fixed times that `hazard` must beat

LIVE = ("live moves", "processor time")
LIVE_IN_FULL = ("live bursts", *LIVE)  # the bursts take twelve minutes


class ForecastBench:
    """The benchmark `forecast`."""

    assumed = "one device with memory and slots for all, no interference, runs of at most 10 s, private bus"
    needs_data = True

    def __init__(self, request: BenchRequest) -> None:
        self._request = request
        self._names = list(SAMPLES)
        if request.data.is_dir():
            check_files(request.data, [*(sample_files(name) for name in self._names), *NEEDED])
        self._points: dict[str, list[KeepAliveResult]] = {}
        self._demand: list[DemandResult] = []
        runs = QUICK_RUNS + FEW_RUNS if request.quick else RUNS * len(self._names)
        self._live = LIVE if request.quick else LIVE_IN_FULL
        self.steps = runs + len(SETS) + len(CHOICES) + len(self._live)

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        goals, tables = [], []
        for name in self._names:
            work = read_sample(name, self._request.data)
            self._points[name] = self._measure(work, on_step)
            goals += self._goals(name)
            tables.append(self._table(work))
        sets = {name: read_set(name, self._request.data, quick=self._request.quick) for name in SETS}
        choice = choose_settings(sets, on_step)
        for name, series in sets.items():
            on_step(f"demand: {name}")
            self._demand += measure_demand(name, series, DemandModel(choice))
            goals += demand_goals(name, self._demand)
        tables.append(demand_table(self._demand, choice))
        for name in self._live:
            on_step(name)
            live_goals, table = self._measure_live(name)
            goals += live_goals
            tables.append(table)
        return BenchResult("forecast", self._request.quick, goals, tables, self.assumed)

    def _measure_live(self, name: str) -> tuple[list[Goal], ResultTable]:
        """Measure a part that runs on real servers."""
        match name:
            case "live bursts":
                return measure_bursts()
            case "live moves":
                return measure_moves(quick=self._request.quick)
            case _:
                return measure_overhead(quick=self._request.quick)

    def draw(self, path: Path) -> None:
        panels = [
            PlotPanel(name, "idle memory, GiB hours", "calls that waited for a start", _lines(points))
            for name, points in self._points.items()
        ]
        draw_panels(panels, "Cold starts against idle memory", path, columns=2)

    def _measure(self, work: MinuteWorkload, on_step: Callable[[str], None]) -> list[KeepAliveResult]:
        points = []
        for what, measured in runs(work, quick=self._request.quick):
            on_step(f"{work.name}: {what}")
            points.append(measured(work))
        return points

    def _goals(self, name: str) -> list[Goal]:
        curve = self._curve(name, HAZARD)
        published = next(point for point in self._curve(name, HYBRID) if point.setting == PUBLISHED)
        waited = waited_at(curve, published.idle_gib_h)
        fewer = None if waited is None else PERCENT * (1 - waited / published.waited)
        ratio = starts_at(curve, published.idle_gib_h) / published.starts
        return [
            at_least(
                f"{name}: fewer cold starts than the hybrid histogram at its idle memory", fewer, FEWER[name], "%"
            ),
            at_most(f"{name}: starts in all against the hybrid histogram's", ratio, MAX_STARTS_RATIO, "times"),
            at_most(
                f"{name}: cold starts against those of the nearest fixed time, worst", self._worst(name), 1, "times"
            ),
        ]

    def _worst(self, name: str) -> float | None:
        """Return the largest ratio of cold starts against a fixed time of up to 20 minutes, where both are measured."""
        curve = self._curve(name, HAZARD)
        fixed = [point for point in self._curve(name, FIXED) if point.setting in FIXED_MINUTES]
        pairs = [(waited_at(curve, point.idle_gib_h), point.waited) for point in fixed]
        return max((ours / theirs for ours, theirs in pairs if ours is not None), default=None)

    def _curve(self, name: str, policy: str) -> list[KeepAliveResult]:
        return [point for point in self._points[name] if point.policy == policy]

    def _table(self, work: MinuteWorkload) -> ResultTable:
        rows: list[list[str | float | None]] = [
            [point.policy, point.setting, point.waited, point.idle_gib_h, point.starts]
            for point in self._points[work.name]
        ]
        rows.append(["clairvoyant", "first calls ever", work.first_calls, 0.0, None])
        columns = ["policy", "setting", "calls that waited", "idle memory, GiB hours", "starts"]
        return ResultTable(f"{work.name}: the second half", columns, rows)


def _lines(points: Sequence[KeepAliveResult]) -> list[PlotLine]:
    lines = []
    for policy in dict.fromkeys(point.policy for point in points):
        own = sorted((point for point in points if point.policy == policy), key=lambda point: point.idle_gib_h)
        lines.append(PlotLine(policy, [point.idle_gib_h for point in own], [float(point.waited) for point in own]))
    return lines
