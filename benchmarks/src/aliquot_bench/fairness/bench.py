"""Compare Aliquot's scheduler with published ones, with equal pools for all policies.

Three sets of arrivals run at four loads, from light load to true overload, on shapes from one device to 64. Latencies
are compared as ratios within one case, which has the same calls, devices and pools for every policy.
"""

from collections.abc import Callable, Iterator, Sequence
from math import exp, fsum, log
from pathlib import Path

from aliquot.config import PolicySettings
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot.sim.report import RunReport, report
from aliquot_bench.base import BenchRequest
from aliquot_bench.fairness import cases
from aliquot_bench.fairness.cases import LOADS, OVERLOAD, POOL_SLOTS, DeviceShape, FairnessCase, make_scenario
from aliquot_bench.fairness.isolation import quiet_mean_s
from aliquot_bench.fairness.lower_bound import p99_bound_s
from aliquot_bench.fairness.memory_bound import CLIENTS, completed_part, longest_wait, memory_bound
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least, at_most

OURS = "fair_resident"
BASELINE = "mqfq_sticky"
OTHERS = ("fcfs", "batch", "sjf", "affinity", BASELINE)
SWITCHES = ("joint", "true_up", "adaptive", "by_value")
STARVATION_FACTOR = 3  # times the longest wait under fcfs, which is the time of the whole backlog
COMPLETED_GOALS = {28: 0.97, 32: 0.87, 48: 0.6}  # by clients: part of the offered rate

Reports = dict[str, RunReport]  # by policy


class FairnessBench:
    """The benchmark `fairness`."""

    needs_data = True

    def __init__(self, request: BenchRequest) -> None:
        self._request = request
        self._shapes = cases.QUICK_SHAPES if request.quick else cases.SHAPES
        self._seeds = range(cases.FIRST_SEED, cases.FIRST_SEED + (1 if request.quick else 2))
        self._many_calls = 6000 if request.quick else 12_000
        self._flows: dict[tuple[str, int], int] = {}  # by set and number of devices
        self._longest_s: dict[FairnessCase, float] = {}  # duration of the longest cold call
        self._bounds_s: dict[FairnessCase, float] = {}  # lower bound of p99 at overload
        self._figures: dict[FairnessCase, Reports] = {}
        self.steps = len(self._cases()) + len(SWITCHES) + len(CLIENTS) + 2

    def _cases(self) -> list[FairnessCase]:
        """Return all cases. Seeds vary slowest, so that a disturbance of the machine affects many settings alike."""
        shapes = [(name, shape) for name in cases.SETS for shape in self._shapes]
        if not self._request.quick:
            shapes += [(name, cases.COMMON_SHAPE) for name in cases.FEW_FLOWS]
        return [
            FairnessCase(name, load, shape, seed) for seed in self._seeds for name, shape in shapes for load in LOADS
        ]

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        for case in self._cases():
            on_step(f"{case.set_name} at {case.load} on {case.shape.name}, seed {case.seed}")
            self._figures[case] = self._measure(case, [PolicySettings(name) for name in (*OTHERS, OURS)])
        ablation = self._ablation(on_step)
        tight, tight_goals = self._memory_bound(on_step)
        on_step("1000 functions on 8 and 64 devices")
        many_goal = self._many_devices()
        on_step("one tenant against another")
        goals = [*self._goals(), *tight_goals, many_goal, *_isolation_goals()]
        return BenchResult("fairness", self._request.quick, goals, [tight, self._overload(), ablation, *self._tables()])

    def draw(self, path: Path) -> None:
        panels = []
        for name in cases.SETS:
            for title, figure in (("mean latency", _mean), ("p99 latency", _p99)):
                lines = [
                    PlotLine(policy, LOADS, [self._ratio_to_baseline(name, load, policy, figure) for load in LOADS])
                    for policy in (*OTHERS, OURS)
                ]
                panels.append(PlotPanel(f"{name}: {title} against {BASELINE}", "load", "ratio", lines))
        draw_panels(panels, f"Equal pools: below 1 is better than {BASELINE}", path, columns=2)

    # --- measurements --------------------------------------------------------------------------------------

    def _measure(self, case: FairnessCase, runs: Sequence[PolicySettings]) -> Reports:
        scenario, self._flows[case.set_name, case.shape.devices] = make_scenario(case, self._request.data)
        times = [function.times for function in scenario.functions.values()]
        self._longest_s[case] = max(each.cold_s + (each.run_s or 0) for each in times)
        if case.load == OVERLOAD:
            self._bounds_s[case] = p99_bound_s(scenario.workload, scenario.functions, case.shape.capacity)
        return _simulate(scenario, runs, POOL_SLOTS)

    def _ablation(self, on_step: Callable[[str], None]) -> ResultTable:
        """Measure the effect of switching off each idea, on two shapes of devices."""
        measured = [
            case
            for case in self._figures
            if case.set_name in cases.SETS and case.shape in (cases.COMMON_SHAPE, cases.SHAPES[0], cases.SHAPES[6])
        ]
        rows: list[list[str | float | None]] = []
        for switch in SWITCHES:
            on_step(f"without {switch}")
            means, tails, jains = [], [], []
            for case in measured:
                without = PolicySettings(OURS, params={OURS: {switch: "false"}})
                off, on = self._measure(case, [without])[OURS], self._figures[case][OURS]
                means.append(_mean(off) / _mean(on))
                tails.append(_p99(off) / _p99(on))
                jains.append(off.fairness.jain - on.fairness.jain)
            rows.append([f"without {switch}", geometric(means), geometric(tails), fsum(jains) / len(jains)])
        columns = ["", "mean latency, times", "p99, times", "Jain, more"]
        return ResultTable("Ablation: what each idea is worth (1, 2 and 16 devices, geometric mean)", columns, rows)

    def _memory_bound(self, on_step: Callable[[str], None]) -> tuple[ResultTable, list[Goal]]:
        rows: list[list[str | float | None]] = []
        goals = []
        for clients in CLIENTS:
            on_step(f"{clients} clients in tight memory")
            runs = [PolicySettings(name) for name in (*OTHERS, OURS)]
            figures = _simulate(memory_bound(clients, cases.FIRST_SEED), runs, 0)
            rows += [
                [clients, policy, completed_part(run), run.swap_ins, _mean(run), longest_wait(run), run.fairness.jain]
                for policy, run in figures.items()
            ]
            ours, name = figures[OURS], f"{clients} clients"
            goals += [
                at_least(f"{name}: part of the offered rate", completed_part(ours), COMPLETED_GOALS[clients]),
                at_most(f"{name}: swap-ins", ours.swap_ins, figures["affinity"].swap_ins, "as affinity has"),
                at_most(f"{name}: longest mean wait of a client", longest_wait(ours), 3, "times the mean"),
            ]
        columns = ["clients", "policy", "part completed", "swap-ins", "mean s", "longest wait, times", "Jain"]
        return ResultTable("Tight memory: 4 devices hold 28 clients of 2 GiB", columns, rows), goals

    def _many_devices(self) -> Goal:
        few, many = (
            _mean(_simulate(cases.many_devices(devices, self._many_calls), [PolicySettings(OURS)], 0)[OURS])
            for devices in (8, 64)
        )
        return at_most("mean on 64 devices of 8 kinds against 8, load 0.5", many / few, 1, "times")

    # --- goals ---------------------------------------------------------------------------------------------

    def _ratio_to_baseline(self, name: str, load: float, policy: str, figure: Callable[[RunReport], float]) -> float:
        """Return the mean ratio of a figure to the baseline's, over shapes and seeds."""
        return geometric(
            figure(figures[policy]) / figure(figures[BASELINE])
            for case, figures in self._figures.items()
            if case.set_name == name and case.load == load
        )

    def _settings(self, name: str, loads: Sequence[float]) -> Iterator[list[Reports]]:
        """Yield the reports of all seeds, for each load and shape."""
        for load in loads:
            for shape in self._shapes:
                yield [figures for _, figures in self._group(name, load, shape)]

    def _group(self, name: str, load: float, shape: DeviceShape) -> list[tuple[FairnessCase, Reports]]:
        wanted = (name, load, shape)
        return [(c, f) for c, f in self._figures.items() if (c.set_name, c.load, c.shape) == wanted]

    def _goals(self) -> Iterator[Goal]:
        for name in cases.SETS:
            below = list(self._settings(name, LOADS[:-1]))
            over = list(self._settings(name, [OVERLOAD]))
            means, tails = [_mean_ratio(group) for group in below], [_p99_ratio(group) for group in below]
            yield at_most(f"{name}: mean against the best but sjf, geometric", geometric(means), 1, "times")
            yield at_most(f"{name}: mean against the best but sjf, worst setting", max(means), 1.02, "times")
            yield at_most(f"{name}: p99 against the best but sjf, geometric", geometric(tails), 1, "times")
            yield at_most(f"{name}: p99 against the best but sjf, worst setting", max(tails), 1.05, "times")
            worst = geometric(_mean(f[OURS]) / _mean(f[BASELINE]) for group in over for f in group)
            yield at_most(f"{name}: mean at overload against {BASELINE}", worst, 1, "times")
            worst = geometric(_p99(f[OURS]) / _p99(f[BASELINE]) for group in over for f in group)
            yield at_most(f"{name}: p99 at overload against {BASELINE}", worst, 0.5, "times")
            gains = [
                mean_of([f[OURS].fairness.jain - f[BASELINE].fairness.jain for f in group]) for group in below + over
            ]
            yield at_least(f"{name}: Jain above {BASELINE}'s, mean setting", mean_of(gains), 0)
            yield at_least(f"{name}: Jain above {BASELINE}'s, worst setting", min(gains), 0)
        starved = sum(
            (group.wait_s.max or 0) > STARVATION_FACTOR * ((figures["fcfs"].wait_s.max or 0) + self._longest_s[case])
            for case, figures in self._figures.items()
            for group in figures[OURS].per_function.values()
        )
        name = f"functions that waited over {STARVATION_FACTOR} times as long as any wait, start and run under fcfs"
        yield at_most(name, starved, 0, "functions")

    # --- tables --------------------------------------------------------------------------------------------

    def _overload(self) -> ResultTable:
        """Return the p99 of each policy at true overload, as multiples of what no schedule can beat."""
        rows: list[list[str | float | None]] = []
        for name in cases.SETS:
            for shape in self._shapes:
                group = [(c, f) for c, f in self._group(name, OVERLOAD, shape) if self._bounds_s[c] > 0]
                ratios = [
                    geometric([_p99(f[policy]) / self._bounds_s[c] for c, f in group]) if group else None
                    for policy in (*OTHERS, OURS)
                ]
                bounds = [self._bounds_s[c] for c, _ in group]
                rows.append([name, shape.name, mean_of(bounds) if bounds else 0.0, *ratios])
        columns = ["set", "devices", "bound s", *(f"{policy}, times" for policy in (*OTHERS, OURS))]
        return ResultTable("p99 at true overload, against a bound that no schedule can beat", columns, rows)

    def _tables(self) -> Iterator[ResultTable]:
        columns = ["devices", "load", "policy", "mean s", "p99 s", "Jain", "largest gap s", "cold starts", "swap-ins"]
        for name in dict.fromkeys(case.set_name for case in self._figures):
            rows: list[list[str | float | None]] = []
            for shape in dict.fromkeys(case.shape for case in self._figures if case.set_name == name):
                for load in LOADS:
                    group = [figures for _, figures in self._group(name, load, shape)]
                    rows += [
                        [shape.name, load, policy, *_means([figures[policy] for figures in group])]
                        for policy in (*OTHERS, OURS)
                    ]
            flows = sorted({count for (own, _), count in self._flows.items() if own == name})
            title = f"{name}: {' to '.join(str(count) for count in (flows[0], flows[-1]))} flows"
            yield ResultTable(f"{title}, mean of {len(self._seeds)} seeds", columns, rows)


def _simulate(scenario: Scenario, runs: Sequence[PolicySettings], pool_slots: int) -> Reports:
    """Simulate each policy with the same pool."""
    overview = scenario.workload.overview()
    figures = {}
    for run in runs:
        settings = PolicySettings(run.queueing, params=run.params, pool_slots=pool_slots)
        recorder = simulate(scenario, settings, overview=overview)
        figures[run.queueing] = report(run.queueing, 0, recorder, scenario.devices)
    return figures


def _isolation_goals() -> Iterator[Goal]:
    alone = quiet_mean_s(OURS)
    many, heavy = quiet_mean_s(OURS, functions=100), quiet_mean_s(OURS, weight=1000)
    yield at_most("a neighbour with 100 functions instead of 1", many / alone, 1.05, "times")
    yield at_most("a neighbour with weight 1000 instead of 1", heavy / alone, 1.05, "times")


def _mean(run: RunReport) -> float:
    return run.latency_s.mean or 0


def _p99(run: RunReport) -> float:
    return run.latency_s.p99 or 0


def _mean_ratio(group: Sequence[Reports]) -> float:
    return geometric([_mean(f[OURS]) / min(_mean(f[name]) for name in OTHERS if name != "sjf") for f in group])


def _p99_ratio(group: Sequence[Reports]) -> float:
    return geometric([_p99(f[OURS]) / min(_p99(f[name]) for name in OTHERS if name != "sjf") for f in group])


def _means(runs: Sequence[RunReport]) -> list[float]:
    figures: tuple[Callable[[RunReport], float], ...] = (
        _mean,
        _p99,
        lambda run: run.fairness.jain,
        lambda run: run.fairness.max_gap_s,
        lambda run: run.cold_starts,
        lambda run: run.swap_ins,
    )
    return [mean_of([figure(run) for run in runs]) for figure in figures]


def geometric(ratios: Iterator[float] | Sequence[float]) -> float:
    """Return the geometric mean."""
    logs = [log(ratio) for ratio in ratios]
    return exp(fsum(logs) / len(logs))


def mean_of(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
