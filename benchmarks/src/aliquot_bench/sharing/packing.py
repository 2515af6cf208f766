"""Packing in the simulator: measure how long large slices wait among small ones.

Every packing gets the same calls. A large slice may have to wait although enough compute is free, because it is not
free in one piece. That free compute is the fragmentation.
"""

from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean, stdev

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.policies.packing import PACKING
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, Simulation
from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot_bench.result import Goal, ResultTable
from aliquot_bench.sharing.part import SharingSizes

DEVICES, FUNCTIONS = 8, 48
LOADS = (0.5, 0.7, 0.85)
POLICIES = ("fair_resident", "fcfs")
SMALL = (0.05, 0.1, 0.1, 0.15, 0.2, 0.25, 0.3)
# The part of the functions that have a large slice, and the sizes of these.
MIXES: dict[str, tuple[float, Sequence[float]]] = {
    "few whole": (0.1, (1.0,)),
    "few large": (0.1, (0.5, 0.6, 0.75, 0.9)),
    "many large": (0.4, (0.5, 0.6, 0.75, 0.9, 1.0)),
    "pairs": (0.1, (1.0, 2.0)),
}
MIN_LARGE = 0.5  # smallest share of a large slice
MEMORY_GIB = (0.25, 0.5, 1, 2)
P99 = 0.99
ASSUMED = f"simulated, {DEVICES} devices of 16 GiB, D = 100, slices without interference"


class PackingResult(Struct, frozen=True):
    """Waiting times of calls with large slices and of all calls, and the fragmentation."""

    large_mean_s: float
    large_p99_s: float
    all_mean_s: float
    fragmented: float  # part of all devices' compute, averaged over time


def make_scenario(mix: str, load: float, calls: int, seed: int) -> Scenario:
    """Make a scenario with devices of 16 GiB. The shares of the calls over their times add up to the load."""
    random = Random(f"{mix} {seed}")
    part, large = MIXES[mix]
    functions = {}
    for number in range(FUNCTIONS):
        share = random.choice(large) if number < part * FUNCTIONS else random.choice(SMALL)
        memory = int(random.choice(MEMORY_GIB) * GIB)
        functions[f"f{number}"] = FunctionSpec(
            f"f{number}", memory, share, Times(random.lognormvariate(0, 0.6), 0.2, 0.05)
        )
    each = fmean((function.share or 0) * (function.times.run_s or 0) for function in functions.values())
    now, arrivals, names = 0.0, [], list(functions)
    for _ in range(calls):
        now += random.expovariate(load * DEVICES / each)
        function = functions[random.choice(names)]
        run_s = (function.times.run_s or 0) * random.lognormvariate(0, 0.3)
        arrivals.append(Arrival(now, function.name, "default", run_s=run_s))
    devices = [DeviceSpec(f"gpu-{number}", "gpu", 16 * GIB, 100) for number in range(DEVICES)]
    return Scenario(devices, functions, ListedWorkload(arrivals))


def measure_packing(scenario: Scenario, policy: str, packing: str) -> PackingResult:
    """Simulate a scenario under a queueing and a packing policy."""
    settings = PolicySettings(policy, packing=packing)
    simulation = Simulation(scenario, settings, scenario.workload.overview(), QUEUEING, None)
    before = free = lost = 0.0
    for now in simulation.moments():
        lost += (now - before) * free
        before, free = now, _fragment(simulation)
    large: list[float] = []
    every: list[float] = []
    for key, record in simulation.recorder.flows.items():
        every += record.wait_s
        if (scenario.functions[key.function].share or 0) >= MIN_LARGE:
            large += record.wait_s
    return PackingResult(fmean(large), p99(large), fmean(every), lost / before / DEVICES)


def _fragment(simulation: Simulation) -> float:
    """Return the free compute of all devices if a large slice waits that would fit into it in one piece."""
    registry = simulation.scheduler.registry
    free = [1 - device.shares_used for device in registry.devices.values()]
    total = sum(free)
    for flow in registry.flows.values():
        share = flow.spec.share or 0
        if flow.queued and share >= MIN_LARGE and share <= total:
            return total
    return 0.0


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(P99 * len(values))]


class PackingPart:
    """The part `packing`."""

    name = "packing"
    on_device = False

    def __init__(
        self, sizes: SharingSizes, mixes: Sequence[str] = tuple(MIXES), loads: Sequence[float] = LOADS
    ) -> None:
        self._calls, self._seeds = sizes.packing_calls, sizes.packing_seeds
        self._mixes, self._loads = mixes, loads
        self._found: dict[tuple[str, str, float, str], list[PackingResult]] = {}
        self.steps = len(mixes) * len(loads) * sizes.packing_seeds

    def run(self, on_step: Callable[[str], None]) -> str:
        for seed in range(1, self._seeds + 1):
            for mix in self._mixes:
                for load in self._loads:
                    on_step(f"packing: {mix} slices at {load}, seed {seed}")
                    scenario = make_scenario(mix, load, self._calls, seed)
                    for policy in POLICIES:
                        for packing in PACKING:
                            found = self._found.setdefault((policy, mix, load, packing), [])
                            found.append(measure_packing(scenario, policy, packing))
        return ""

    def goals(self) -> list[Goal]:
        return []

    def tables(self) -> list[ResultTable]:
        return [self._detail(), self._summary()]

    def _detail(self) -> ResultTable:
        rows: list[list[str | float | None]] = [
            [*key, *(fmean(getattr(each, field) for each in found) for field in PackingResult.__struct_fields__)]
            for key, found in self._found.items()
        ]
        title = (
            f"Packing in the simulator: {DEVICES} devices, {self._calls} calls of {FUNCTIONS} functions, mean of"
            f" {self._seeds} seeds; large slices are those of {MIN_LARGE:g} and more; free beside: of all compute,"
            " while a large slice waits that it would hold in one piece"
        )
        columns = ["policy", "large slices", "load", "packing", "large wait, s", "p99", "all wait, s", "free beside"]
        return ResultTable(title, columns, rows, ASSUMED)

    def _summary(self) -> ResultTable:
        """Compare each packing with first fit on the same calls, by setting and seed."""
        rows: list[list[str | float | None]] = []
        for policy in POLICIES:
            for packing in PACKING:
                waits, frees, wins, count = [], [], 0, 0
                for (other_policy, mix, load, other_packing), found in self._found.items():
                    if (other_policy, other_packing) == (policy, packing):
                        base = self._found[policy, mix, load, "first_fit"]
                        waits += [_change(a.large_mean_s, b.large_mean_s) for a, b in zip(found, base, strict=True)]
                        frees += [_change(a.fragmented, b.fragmented) for a, b in zip(found, base, strict=True)]
                        wins += self._is_best(policy, mix, load, packing)
                        count += 1
                error = stdev(waits) / len(waits) ** 0.5 if len(waits) > 1 else None
                rows.append([policy, packing, fmean(waits), error, fmean(frees), f"{wins} of {count}"])
        columns = ["policy", "packing", "large wait, change in %", "± standard error", "free beside, change in %"]
        return ResultTable(
            "Packing: against first fit on the same calls", [*columns, "least large wait"], rows, ASSUMED
        )

    def _is_best(self, policy: str, mix: str, load: float, packing: str) -> bool:
        means = {each: fmean(found.large_mean_s for found in self._found[policy, mix, load, each]) for each in PACKING}
        return means[packing] == min(means.values())

    def panels(self) -> list[PlotPanel]:
        lines = [
            PlotLine(
                packing,
                self._loads,
                [
                    fmean(
                        one.large_mean_s for mix in self._mixes for one in self._found[POLICIES[0], mix, load, packing]
                    )
                    for load in self._loads
                ],
            )
            for packing in PACKING
        ]
        return [PlotPanel("Packing: how long large slices wait", "load", "s", lines)]


def _change(new: float, old: float) -> float:
    return 100 * (new / old - 1) if old else 0.0
