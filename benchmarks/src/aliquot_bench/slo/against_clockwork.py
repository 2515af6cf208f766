"""Calls in time on four measured networks, against Clockwork and against accepting everything."""

from collections.abc import Callable, Sequence
from math import exp, log
from statistics import fmean

from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot.sim.statistics import quantile
from aliquot_bench.result import Goal, ResultTable, at_least, at_most
from aliquot_bench.slo.measuring import CLOCKWORK, FIFO, OURS, SloOutcome, measure, settings_of
from aliquot_bench.slo.networks import LIMITS, NetworkCase, network_scenario, read_networks
from aliquot_bench.slo.part import SEED, SloSizes

LOADS = (0.8, 1.5, 2.0, 4.0)
CVS = (1.0, 4.0)
POLICIES = (OURS, CLOCKWORK, FIFO)
GOALS = {1.5: 0.97, 2.0: 1.03, 4.0: 1.1}  # met against Clockwork, by load; the first is that of all lower loads, too
WORST_GOAL = 0.9


class ClockworkPart:
    """Compare in cells of limits, lanes, loads and burstiness, each with the same calls for all policies."""

    name = "four networks"

    def __init__(self, sizes: SloSizes) -> None:
        self._networks = read_networks(sizes.data)
        self._cases = [
            NetworkCase(limits, load, lanes, cv, SEED, sizes.network_calls)
            for limits in LIMITS
            for lanes in sizes.network_lanes
            for cv in CVS
            for load in LOADS
        ]
        self._outcomes: dict[NetworkCase, dict[str, SloOutcome]] = {}
        self.steps = len(self._cases)

    def run(self, on_step: Callable[[str], None]) -> None:
        for case in self._cases:
            on_step(f"four networks: {case.name}")
            scenario = network_scenario(case, self._networks)
            self._outcomes[case] = {policy: measure(scenario, settings_of(policy)) for policy in POLICIES}

    def _ratio(self, case: NetworkCase) -> float:
        outcomes = self._outcomes[case]
        return max(1, outcomes[OURS].met) / max(1, outcomes[CLOCKWORK].met)

    def goals(self) -> Sequence[Goal]:
        goals = []
        for load, wanted in GOALS.items():
            cells = [case for case in self._cases if case.load == load or (load == min(GOALS) and case.load < load)]
            least = "at most " if load == min(GOALS) else ""
            name = f"four networks: in time against Clockwork, load {least}{load:g}, geometric mean"
            goals.append(at_least(name, exp(fmean(log(self._ratio(case)) for case in cells)), wanted, "times"))
        worst = min(self._ratio(case) for case in self._cases)
        broken = max(outcomes[OURS].broken_part for outcomes in self._outcomes.values())
        return [
            *goals,
            at_least("four networks: in time against Clockwork, worst cell", worst, WORST_GOAL, "times"),
            at_most("four networks: promises broken, worst cell", 100 * broken, 0.1, "%"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = []
        for case in self._cases:
            outcomes = self._outcomes[case]
            ours, peer = outcomes[OURS], outcomes[CLOCKWORK]
            rows.append(
                [
                    case.name, ours.calls, *(outcomes[policy].goodput for policy in POLICIES), self._ratio(case),
                    ours.broken, *(1e3 * quantile(each.refused_after_s, 0.5) if each.refused_after_s else None
                                   for each in (ours, peer)),
                ]
            )  # fmt: skip
        columns = [
            "", "calls", *(f"{policy}, in time/s" for policy in POLICIES), "against Clockwork", "promises broken",
            "ms to a refusal, median", "Clockwork's",
        ]  # fmt: skip
        return [ResultTable("Four measured networks with deadlines", columns, rows)]

    def panels(self) -> Sequence[PlotPanel]:
        panels = []
        for limits in LIMITS:
            cells = [case for case in self._cases if case.limits == limits]
            lanes = cells[0].lanes
            lines = [
                PlotLine(policy, LOADS, [self._goodput(policy, limits, lanes, load) for load in LOADS])
                for policy in POLICIES
            ]
            panels.append(PlotPanel(f"limits {limits}, {lanes} lanes", "load", "in time per second", lines))
        return panels

    def _goodput(self, policy: str, limits: str, lanes: int, load: float) -> float:
        return fmean(
            outcomes[policy].goodput
            for case, outcomes in self._outcomes.items()
            if (case.limits, case.lanes, case.load) == (limits, lanes, load)
        )
