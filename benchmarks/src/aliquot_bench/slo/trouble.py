"""Promises on bad days: uncertain run times, outliers, too little memory, and a neighbour's flood of tight calls."""

from collections.abc import Callable, Sequence
from statistics import fmean

from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.plots import PlotPanel
from aliquot.sim.recorder import CallLine
from aliquot_bench.result import Goal, ResultTable, at_least, at_most
from aliquot_bench.slo.bad_days import VICTIM, beside_a_neighbour, many_flows, with_outliers
from aliquot_bench.slo.measuring import OURS, SloOutcome, measure, settings_of
from aliquot_bench.slo.networks import LIMITS, NetworkCase, capacity, limits_s, network_scenario, read_networks
from aliquot_bench.slo.part import SEED, SloSizes

CVS = (0.02, 0.05, 0.1)
LANES = 2
FLOWS_LOAD = 0.5
TENANT_LANES = 2


class TroublePart:
    """Measure the promises of `reservation` on bad days."""

    name = "bad days"
    steps = 4

    def __init__(self, sizes: SloSizes) -> None:
        self._sizes = sizes
        self._networks = read_networks(sizes.data)
        self._broken: dict[str, SloOutcome] = {}
        self._outliers: dict[str, float] = {}  # goodput as a part of the capacity, by limits
        self._flows: dict[str, SloOutcome] = {}
        self._tenants: dict[str, tuple[float, float]] = {}  # plain mean and promised in time

    def run(self, on_step: Callable[[str], None]) -> None:
        on_step("bad days: uncertain run times")
        for cv in CVS:
            for limits in LIMITS:
                case = NetworkCase(limits, 2, LANES, 1, SEED, self._sizes.broken_calls, cv)
                self._broken[f"{limits}, run times with cv {cv:g}"] = self._measure(case)
        on_step("bad days: a few runs take four times as long")
        for limits in LIMITS:
            case = NetworkCase(limits, 2, LANES, 1, SEED, self._sizes.network_calls)
            scenario = with_outliers(network_scenario(case, self._networks), SEED)
            most = capacity(self._networks, limits_s(limits, self._networks), LANES)
            self._outliers[limits] = measure(scenario, settings_of(OURS)).goodput / most
        on_step("bad days: 200 functions in memory for 40")
        scenario = many_flows(self._sizes.data, self._sizes.flows_calls, FLOWS_LOAD, SEED)
        self._flows[OURS] = measure(scenario, settings_of(OURS))
        on_step("bad days: a neighbour's flood of tight calls")
        for flood in (False, True):
            name = "beside the flood" if flood else "alone on half of the lanes"
            self._tenants[name] = victim(beside_a_neighbour(TENANT_LANES, self._sizes.tenants_s, SEED, flood=flood))

    def _measure(self, case: NetworkCase) -> SloOutcome:
        return measure(network_scenario(case, self._networks), settings_of(OURS))

    def goals(self) -> Sequence[Goal]:
        broken = sum(each.broken for each in self._broken.values()) / sum(
            each.promised for each in self._broken.values()
        )
        flows = self._flows[OURS]
        alone, flooded = self._tenants.values()
        return [
            at_most("run times with cv up to 0.1, load 2: promises broken", 100 * broken, 0.1, "%"),
            at_least(
                "0.5 % of runs take four times as long, load 2: in time, of the capacity",
                min(self._outliers.values()),
                0.6,
                "times",
            ),
            at_least("200 functions, memory for 40: promises kept", 100 * (1 - flows.broken_part), 99.99, "%"),
            at_most("a tenant beside a flood of tight calls: mean of plain calls", flooded[0] / alone[0], 1.5, "times"),
            at_least("a tenant beside a flood of tight calls: calls in time", flooded[1] / alone[1], 0.95, "times"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        runs: list[list[str | float | None]] = [
            [name, each.promised, each.broken, 100 * each.broken_part] for name, each in self._broken.items()
        ]
        outliers: list[list[str | float | None]] = [[name, part] for name, part in self._outliers.items()]
        flows: list[list[str | float | None]] = [
            [policy, each.calls, each.met, each.promised, each.broken] for policy, each in self._flows.items()
        ]
        tenants: list[list[str | float | None]] = [
            [name, 1e3 * mean_s, 100 * part] for name, (mean_s, part) in self._tenants.items()
        ]
        return [
            ResultTable("Broken promises at load 2", ["", "promised", "broken", "%"], runs),
            ResultTable("0.5 % of runs four times as long, load 2", ["limits", "in time, of capacity"], outliers),
            ResultTable(
                "200 functions with Azure's arrivals, memory for 40, limit 100 ms",
                ["", "calls", "in time", "promised", "broken"],
                flows,
                "4 devices of 10 GiB, D = 1, no interference, functions of 1 GiB that run for 10 ms",
            ),
            ResultTable("A tenant at half its share", ["", "plain, mean ms", "limited, in time, %"], tenants),
        ]

    def panels(self) -> Sequence[PlotPanel]:
        return []


def victim(scenario: Scenario) -> tuple[float, float]:
    """Return the mean latency of the tenant's plain calls, and the part of its limited calls that are in time."""
    lines: list[CallLine] = []
    simulate(scenario, settings_of(OURS), on_end=lines.append)
    own = [line for line in lines if line.tenant == VICTIM]
    plain = [line.ended_s - line.arrived_s for line in own if line.met is None]
    limited = [bool(line.met) for line in own if line.met is not None]
    return fmean(plain), fmean(limited)
