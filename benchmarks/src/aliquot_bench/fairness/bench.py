"""Compare Aliquot's scheduler with published ones, with equal pools for all policies.

Three sets of arrivals run at four loads, from light load to true overload, on shapes from one device to 64. Latencies
are compared as ratios within one case, which has the same calls, devices and pools for every policy.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from aliquot.config import PolicySettings
from aliquot.sim.contention import V100_STRETCH
from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.files import check_files, needed_files
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.plots import PlotLine, PlotPanel, draw_panels
from aliquot.sim.report import RunReport
from aliquot.sim.tables import assumptions
from aliquot_bench.base import BenchRequest
from aliquot_bench.fairness import cases
from aliquot_bench.fairness.by_function import by_function_table
from aliquot_bench.fairness.cases import LOADS, OVERLOAD, FairnessCase
from aliquot_bench.fairness.isolation import quiet_mean_s
from aliquot_bench.fairness.measuring import CaseJob, CaseResult, Reports, measure_all, simulate_all
from aliquot_bench.fairness.memory_bound import CLIENTS, completed_part, longest_wait, memory_bound
from aliquot_bench.fairness.ratios import (
    BASELINE,
    MAX_MEAN_RATIO,
    MAX_P99_RATIO,
    OTHERS,
    OURS,
    geometric,
    goals_met,
    jain_gain,
    mean_latency,
    mean_of,
    mean_ratio,
    p99_latency,
    p99_ratio,
)
from aliquot_bench.fairness.variants import ablation_table, frontier_table, variants_of
from aliquot_bench.result import BenchResult, Goal, ResultTable, at_least, at_most

STARVATION_FACTOR = 3  # times the longest wait under fcfs, which is the time of the whole backlog
COMPLETED_GOALS = {28: 0.97, 32: 0.87, 48: 0.6}  # by clients: part of the offered rate


class FairnessBench:
    """The benchmark `fairness`."""

    assumed = (
        f"D and memory as named with the devices, interference {V100_STRETCH[2]:g} times for two calls, shared bus, "
        f"pools of {cases.POOL_SLOTS} sandboxes a device"
    )
    needs_data = True

    def __init__(self, request: BenchRequest, workers: int | None = None) -> None:
        if request.data.is_dir():
            requests = {name: ImportRequest(request.data) for name in cases.SETS if name in IMPORTERS}
            check_files(request.data, [needed_files(name, each) for name, each in requests.items()])
        self._request = request
        self._workers = workers
        self._shapes = cases.QUICK_SHAPES if request.quick else cases.SHAPES
        self._many_calls = 6000 if request.quick else 12_000
        self._results: dict[FairnessCase, CaseResult] = {}
        self._figures: dict[FairnessCase, Reports] = {}
        self.steps = len(self._cases()) + len(CLIENTS) + 2

    def _cases(self) -> list[FairnessCase]:
        return [
            FairnessCase(name, load, shape, cases.FIRST_SEED)
            for name in cases.SETS
            for shape in self._shapes
            for load in LOADS
        ]

    def run(self, on_step: Callable[[str], None]) -> BenchResult:
        self._measure(on_step)
        tight, tight_goals = self._memory_bound(on_step)
        on_step("1000 functions on 8 and 64 devices")
        many_goal = self._many_devices()
        on_step("one tenant against another")
        goals = [*self._goals(), *tight_goals, many_goal, *_isolation_goals()]
        tables = [self._met(), tight, self._overload(), ablation_table(self._figures), frontier_table(self._figures)]
        tables.append(by_function_table(self._figures))
        return BenchResult("fairness", self._request.quick, goals, [*tables, *self._tables()], self.assumed)

    def draw(self, path: Path) -> None:
        panels = []
        for name in cases.SETS:
            for title, figure in (("mean latency", mean_latency), ("p99 latency", p99_latency)):
                lines = [
                    PlotLine(policy, LOADS, [self._ratio_to_baseline(name, load, policy, figure) for load in LOADS])
                    for policy in (*OTHERS, OURS)
                ]
                panels.append(PlotPanel(f"{name}: {title} against {BASELINE}", "load", "ratio", lines))
        draw_panels(panels, f"Equal pools: below 1 is better than {BASELINE}", path, columns=2)

    # --- measurements --------------------------------------------------------------------------------------

    def _measure(self, on_step: Callable[[str], None]) -> None:
        policies = {name: PolicySettings(name) for name in (*OTHERS, OURS)}
        jobs = [CaseJob(case, self._request.data, {**policies, **variants_of(case)}) for case in self._cases()]
        measured = measure_all(jobs, self._workers)
        for job in jobs:
            case = job.case
            on_step(f"{case.set_name} at {case.load} on {case.shape.name}")
            result = self._results[case] = next(measured)
            self._figures[case] = result.reports

    def _memory_bound(self, on_step: Callable[[str], None]) -> tuple[ResultTable, list[Goal]]:
        rows: list[list[str | float | None]] = []
        goals = []
        for clients in CLIENTS:
            on_step(f"{clients} clients in tight memory")
            runs = {name: PolicySettings(name) for name in (*OTHERS, OURS)}
            figures = simulate_all(memory_bound(clients, cases.FIRST_SEED), runs, 0)
            rows += [
                [
                    clients,
                    policy,
                    completed_part(run),
                    run.swap_ins,
                    mean_latency(run),
                    longest_wait(run),
                    run.fairness.jain,
                ]
                for policy, run in figures.items()
            ]
            ours, name = figures[OURS], f"{clients} clients"
            goals += [
                at_least(f"{name}: part of the offered rate", completed_part(ours), COMPLETED_GOALS[clients]),
                at_most(f"{name}: swap-ins", ours.swap_ins, figures["affinity"].swap_ins, "as affinity has"),
                at_most(f"{name}: longest mean wait of a client", longest_wait(ours), 3, "times the mean"),
            ]
        columns = ["clients", "policy", "part completed", "swap-ins", "mean s", "longest wait, times", "Jain"]
        tight = assumptions(memory_bound(CLIENTS[0], cases.FIRST_SEED), [PolicySettings(OURS)])
        return ResultTable("Tight memory: 4 devices hold 28 clients of 2 GiB", columns, rows, tight), goals

    def _many_devices(self) -> Goal:
        few, many = (
            mean_latency(
                simulate_all(cases.many_devices(devices, self._many_calls), {OURS: PolicySettings(OURS)}, 0)[OURS]
            )
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

    def _select(self, name: str, loads: Sequence[float]) -> list[CaseResult]:
        """Return the results of a set at these loads, on all shapes."""
        return [each for case, each in self._results.items() if case.set_name == name and case.load in loads]

    def _goals(self) -> Iterator[Goal]:
        for name in cases.SETS:
            below = [each.reports for each in self._select(name, LOADS[:-1])]
            means, tails = [mean_ratio(figures) for figures in below], [p99_ratio(figures) for figures in below]
            yield at_most(f"{name}: mean against the best but sjf, geometric", geometric(means), 1, "times")
            yield at_most(f"{name}: mean against the best but sjf, worst setting", max(means), MAX_MEAN_RATIO, "times")
            yield at_most(f"{name}: p99 against the best but sjf, geometric", geometric(tails), 1, "times")
            yield at_most(f"{name}: p99 against the best but sjf, worst setting", max(tails), MAX_P99_RATIO, "times")
            yield from self._overload_goals(name, self._select(name, [OVERLOAD]))
            gains = [jain_gain(each.reports) for each in self._select(name, LOADS)]
            yield at_least(f"{name}: Jain above {BASELINE}'s, mean setting", mean_of(gains), 0)
            yield at_least(f"{name}: Jain above {BASELINE}'s, worst setting", min(gains), 0)
        starved = sum(
            (group.wait_s.max or 0) > STARVATION_FACTOR * ((each.reports["fcfs"].wait_s.max or 0) + each.longest_s)
            for each in self._results.values()
            for group in each.reports[OURS].per_function.values()
        )
        name = f"functions that waited over {STARVATION_FACTOR} times as long as any wait, start and run under fcfs"
        yield at_most(name, starved, 0, "functions")

    def _overload_goals(self, name: str, over: Sequence[CaseResult]) -> Iterator[Goal]:
        """Yield the goals at overload, with what the lower bound leaves possible."""
        runs = [(each.reports[OURS], each.reports[BASELINE], each.bound_s) for each in over]
        mean = geometric(mean_latency(ours) / mean_latency(base) for ours, base, _ in runs)
        yield at_most(f"{name}: mean at overload against {BASELINE}", mean, 1, "times")
        tail = geometric(p99_latency(ours) / p99_latency(base) for ours, base, _ in runs)
        least = geometric(bound_s / p99_latency(base) for _, base, bound_s in runs)
        remark = f"no schedule is below {least:.2f}"
        yield at_most(f"{name}: p99 at overload against {BASELINE} ({remark})", tail, 0.5, "times")

    # --- tables --------------------------------------------------------------------------------------------

    def _met(self) -> ResultTable:
        """Return in how many settings below overload each goal is met."""
        rows: list[list[str | float | None]] = []
        for name in cases.SETS:
            met = [goals_met(each.reports) for each in self._select(name, LOADS[:-1])]
            counts = [sum(each[goal] for each in met) for goal in range(3)]
            rows.append([name, len(met), *counts, sum(all(each) for each in met)])
        columns = ["set", "settings", "mean", "p99", "Jain", "all three"]
        return ResultTable("Settings below overload that meet the goals", columns, rows)

    def _overload(self) -> ResultTable:
        """Return the p99 of each policy at true overload, as multiples of what no schedule can beat."""
        rows: list[list[str | float | None]] = []
        for case, each in self._results.items():
            if case.load == OVERLOAD:
                tails = [p99_latency(each.reports[policy]) for policy in (*OTHERS, OURS)]
                times = [tail / each.bound_s if each.bound_s else None for tail in (each.fair_s, *tails)]
                least = each.bound_s / p99_latency(each.reports[BASELINE])
                rows.append([case.set_name, case.shape.name, each.bound_s, least, *times])
        columns = ["set", "devices", "bound s", f"bound / {BASELINE}", "ideal fair sharing, times"]
        columns += [f"{policy}, times" for policy in (*OTHERS, OURS)]
        return ResultTable("p99 at true overload, against a bound that no schedule can beat", columns, rows)

    def _tables(self) -> Iterator[ResultTable]:
        columns = ["devices", "load", "policy", "mean s", "p99 s", "Jain", "largest gap s", "cold starts", "swap-ins"]
        for name in dict.fromkeys(case.set_name for case in self._results):
            own = {case: each for case, each in self._results.items() if case.set_name == name}
            rows = [
                [case.shape.name, case.load, policy, *_row(each.reports[policy])]
                for case, each in own.items()
                for policy in (*OTHERS, OURS)
            ]
            flows = [each.flows for each in own.values()]
            yield ResultTable(f"{name}: {min(flows)} to {max(flows)} flows", columns, rows)


def _isolation_goals() -> Iterator[Goal]:
    alone = quiet_mean_s(OURS)
    many, heavy = quiet_mean_s(OURS, functions=100), quiet_mean_s(OURS, weight=1000)
    yield at_most("a neighbour with 100 functions instead of 1", many / alone, 1.05, "times")
    yield at_most("a neighbour with weight 1000 instead of 1", heavy / alone, 1.05, "times")


def _row(run: RunReport) -> list[str | float | None]:
    fairness = run.fairness
    return [mean_latency(run), p99_latency(run), fairness.jain, fairness.max_gap_s, run.cold_starts, run.swap_ins]
