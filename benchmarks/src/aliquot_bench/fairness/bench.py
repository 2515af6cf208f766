"""Compare Aliquot's scheduler with published ones on real arrivals.

Every trace runs at three loads on one, two and four devices. The goals hold for traces with ten flows or more.
Latencies are compared as ratios within one case, which has the same calls and devices for every policy.
"""

from collections.abc import Callable, Iterator, Sequence
from math import exp, fsum, log
from pathlib import Path

from aliquot.config import PolicySettings
from aliquot.sim.engine import simulate
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot.sim.report import RunReport, report
from aliquot_bench.base import BenchRequest
from aliquot_bench.fairness.cases import DEVICES, LOADS, MANY_FLOWS, SETS, FairnessCase, make_scenario
from aliquot_bench.fairness.isolation import quiet_mean_s
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least, at_most

OURS = "fair_resident"
BASELINE = "mqfq_sticky"
OTHERS = ("fcfs", "batch", "sjf", "affinity", BASELINE)
SWITCHES = ("joint", "true_up", "adaptive", "by_value")
OVERLOAD = LOADS[-1]
STARVATION_FACTOR = 3  # times the longest wait under fcfs, which is the time of the whole backlog


class FairnessBench:
    """The benchmark `fairness`."""

    needs_data = True

    def __init__(self, request: BenchRequest) -> None:
        self._request = request
        self._calls = 2500 if request.quick else 6000
        self._seeds = 1 if request.quick else 3
        self._flows: dict[str, int] = {}
        self._longest_s: dict[FairnessCase, float] = {}  # duration of the longest cold call
        self._figures: dict[FairnessCase, dict[str, RunReport]] = {}
        self.steps = len(self._cases()) + len(SWITCHES) + 1

    def _cases(self) -> list[FairnessCase]:
        """Return all cases. Seeds vary slowest, so that a disturbance of the machine affects many settings alike."""
        return [
            FairnessCase(name, load, devices, seed)
            for seed in range(self._seeds)
            for name in SETS
            for load in LOADS
            for devices in DEVICES
        ]

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        for case in self._cases():
            on_step(f"{case.set_name} at {case.load} on {case.devices}, seed {case.seed}")
            self._figures[case] = self._measure(case, [PolicySettings(name) for name in (*OTHERS, OURS)])
        ablation = self._ablation(on_step)
        on_step("one tenant against another")
        goals = [*self._goals(), *self._isolation_goals()]
        return BenchResult("fairness", self._request.quick, goals, [*self._tables(), ablation])

    def draw(self, path: Path) -> None:
        panels = []
        for name in self._large_sets():
            for title, ratio in (("mean latency", _mean), ("p99 latency", _p99)):
                lines = [
                    PlotLine(policy, LOADS, [self._mean_ratio_to_baseline(name, load, policy, ratio) for load in LOADS])
                    for policy in (*OTHERS, OURS)
                ]
                panels.append(PlotPanel(f"{name}: {title} against {BASELINE}", "offered load", "ratio", lines))
        draw_panels(
            panels, "Real arrivals on 1, 2 and 4 devices: below 1 is better than the published best", path, columns=2
        )

    # --- measurements --------------------------------------------------------------------------------------

    def _measure(self, case: FairnessCase, runs: Sequence[PolicySettings]) -> dict[str, RunReport]:
        scenario, self._flows[case.set_name] = make_scenario(case, self._request.data, self._calls)
        times = [function.times for function in scenario.functions.values()]
        self._longest_s[case] = max(each.cold_s + (each.run_s or 0) for each in times)
        overview = scenario.workload.overview()
        figures = {}
        for settings in runs:
            recorder = simulate(scenario, settings, overview=overview)
            figures[settings.queueing] = report(settings.queueing, case.seed, recorder, scenario.devices)
        return figures

    def _ablation(self, on_step: Callable[[str], None]) -> ResultTable:
        """Measure the effect of switching off each idea, on the traces with many flows and two devices."""
        # Several seeds, because a single one can change a mean on ServeGen by half.
        cases = [
            FairnessCase(name, load, 2, seed)
            for name in self._large_sets()
            for load in LOADS
            for seed in range(self._seeds)
        ]
        rows: list[list[str | float | None]] = []
        for switch in SWITCHES:
            on_step(f"without {switch}")
            means, tails, jains = [], [], []
            for case in cases:
                without = PolicySettings(OURS, params={OURS: {switch: "false"}})
                off, on = self._measure(case, [without])[OURS], self._figures[case][OURS]
                means.append(_mean(off) / _mean(on))
                tails.append(_p99(off) / _p99(on))
                jains.append(off.fairness.jain - on.fairness.jain)
            rows.append([f"without {switch}", _geometric(means), _geometric(tails), fsum(jains) / len(jains)])
        columns = ["", "mean latency, times", "p99, times", "Jain, more"]
        return ResultTable("Ablation: what each idea is worth (2 devices, geometric mean)", columns, rows)

    # --- goals and tables ----------------------------------------------------------------------------------

    def _large_sets(self) -> list[str]:
        """Return the traces with enough flows for the goals."""
        return [name for name in SETS if self._flows[name] >= MANY_FLOWS]

    def _mean_ratio_to_baseline(
        self, name: str, load: float, policy: str, figure: Callable[[RunReport], float]
    ) -> float:
        """Return the mean ratio of a figure to the baseline's, over devices and seeds."""
        return _geometric(
            figure(figures[policy]) / figure(figures[BASELINE])
            for case, figures in self._figures.items()
            if case.set_name == name and case.load == load
        )

    def _cases_of(self, name: str, loads: Sequence[float]) -> Iterator[tuple[FairnessCase, dict[str, RunReport]]]:
        """Return the cases of a trace at these loads, with the reports of all policies."""
        return ((case, f) for case, f in self._figures.items() if case.set_name == name and case.load in loads)

    def _goals(self) -> Iterator[Goal]:
        for name in self._large_sets():
            below = list(self._settings(name, LOADS[:-1]))
            yield at_most(
                f"{name}: mean against the best but sjf, worst setting", max(map(_mean_ratio, below)), 1, "times"
            )
            yield at_most(f"{name}: p99 against the best, worst setting", max(map(_p99_ratio, below)), 1, "times")
            over = list(self._settings(name, [OVERLOAD]))
            tails = [_p99(f[OURS]) / _p99(f[BASELINE]) for group in over for f in group]
            yield at_most(f"{name}: p99 at overload against {BASELINE}", _geometric(tails), 0.5, "times")
            everything = list(self._settings(name, LOADS))
            gains = [_mean_of(f[OURS].fairness.jain - f[BASELINE].fairness.jain for f in group) for group in everything]
            yield at_least(f"{name}: Jain above {BASELINE}'s, mean setting", _mean_of(gains), 0)
            yield at_least(f"{name}: Jain above {BASELINE}'s, worst setting", min(gains), 0)
        starved = sum(
            (group.wait_s.max or 0) > STARVATION_FACTOR * ((figures["fcfs"].wait_s.max or 0) + self._longest_s[case])
            for case, figures in self._figures.items()
            for group in figures[OURS].per_function.values()
        )
        name = (
            f"functions that waited over {STARVATION_FACTOR} times as long as anybody's wait, start and run under fcfs"
        )
        yield at_most(name, starved, 0, "functions")

    def _settings(self, name: str, loads: Sequence[float]) -> Iterator[list[dict[str, RunReport]]]:
        """Yield the reports of all seeds, for each load and number of devices."""
        for load in loads:
            for devices in DEVICES:
                yield [f for case, f in self._cases_of(name, [load]) if case.devices == devices]

    def _isolation_goals(self) -> Iterator[Goal]:
        alone = quiet_mean_s(OURS)
        yield at_most(
            "a neighbour with 100 functions instead of 1", quiet_mean_s(OURS, functions=100) / alone, 1.05, "times"
        )
        yield at_most(
            "a neighbour with weight 1000 instead of 1", quiet_mean_s(OURS, weight=1000) / alone, 1.05, "times"
        )

    def _tables(self) -> Iterator[ResultTable]:
        columns = ["set", "load", "devices", "policy", "mean s", "p99 s", "variance of means", "Jain", "largest gap s"]
        for name in SETS:
            rows: list[list[str | float | None]] = []
            for load in LOADS:
                for devices in DEVICES:
                    group = [f for case, f in self._cases_of(name, [load]) if case.devices == devices]
                    for policy in (*OTHERS, OURS):
                        runs = [figures[policy] for figures in group]
                        rows.append([name, load, devices, policy, *_medians(runs)])
            yield ResultTable(f"{name}: {self._flows[name]} flows, median of {self._seeds} seeds", columns, rows)


def _mean(run: RunReport) -> float:
    return run.latency_s.mean or 0


def _p99(run: RunReport) -> float:
    return run.latency_s.p99 or 0


def _mean_ratio(group: Sequence[dict[str, RunReport]]) -> float:
    return _geometric(_mean(f[OURS]) / min(_mean(f[name]) for name in OTHERS if name != "sjf") for f in group)


def _p99_ratio(group: Sequence[dict[str, RunReport]]) -> float:
    return _geometric(_p99(f[OURS]) / min(_p99(f[name]) for name in OTHERS) for f in group)


def _medians(runs: Sequence[RunReport]) -> list[float]:
    figures = (
        _mean,
        _p99,
        lambda run: run.fairness.variance_of_means,
        lambda run: run.fairness.jain,
        lambda run: run.fairness.max_gap_s,
    )
    return [float(sorted(figure(run) for run in runs)[len(runs) // 2]) for figure in figures]


def _geometric(ratios: Iterator[float] | Sequence[float]) -> float:
    logs = [log(ratio) for ratio in ratios]
    return exp(fsum(logs) / len(logs))


def _mean_of(values: Iterator[float] | Sequence[float]) -> float:
    listed = list(values)
    return fsum(listed) / len(listed)
