"""Learned costs against the bounds of single runs: the same calls on accelerators and processors."""

from collections.abc import Callable, Sequence
from random import Random

from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.plots import PlotPanel
from aliquot.sim.recorder import CallLine
from aliquot.sim.workloads import draw_run_s
from aliquot_bench.result import Goal, ResultTable, at_least, at_most
from aliquot_bench.slo.measuring import LEARNED, OURS, settings_of
from aliquot_bench.slo.networks import Network, read_networks
from aliquot_bench.slo.part import SEED, SloSizes

SKIPPED = 2000  # calls from which is learned before any count
LOADS = (0.5, 1.0, 2.0)
CPU_FACTOR = 8.0  # of the time on an accelerator
GPUS, CORES = 2, 8
LIMIT_RUNS = 30  # the limit of each network in single runs on an accelerator
RUN_CV = 0.05


class LearningPart:
    """Compare the calls in time and their cost."""

    name = "learned costs"
    steps = len(LOADS)

    def __init__(self, sizes: SloSizes) -> None:
        self._networks = read_networks(sizes.data)
        self._calls = SKIPPED + sizes.network_calls
        self._found: dict[tuple[float, str], tuple[float, float]] = {}  # calls in time, and the cost of one

    def run(self, on_step: Callable[[str], None]) -> None:
        for load in LOADS:
            on_step(f"learned costs: load {load:g}")
            for policy in (OURS, LEARNED):
                self._found[load, policy] = outcome(two_kinds(self._networks, load, self._calls, SEED), policy)

    def goals(self) -> Sequence[Goal]:
        met = [self._found[load, LEARNED][0] / self._found[load, OURS][0] for load in LOADS]
        cost = [self._found[load, LEARNED][1] / self._found[load, OURS][1] for load in LOADS]
        return [
            at_least("learned costs against bounds: calls in time, worst load", min(met), 0.97, "times"),
            at_most("learned costs against bounds: cost of a call in time, worst load", max(cost), 1.05, "times"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [load, *self._found[load, OURS], *self._found[load, LEARNED]] for load in LOADS
        ]
        columns = ["load", "reservation, in time", "cost of one", "learned, in time", "cost of one"]
        return [ResultTable("Learned costs, two accelerators and eight cores", columns, rows)]

    def panels(self) -> Sequence[PlotPanel]:
        return []


def two_kinds(networks: Sequence[Network], load: float, calls: int, seed: int) -> Scenario:
    """Return calls of the networks, each of which runs on accelerators and, for longer, on processors."""
    random = Random(f"learned/{seed}/{load}")
    functions = {}
    for network in networks:
        batches = {size: run_s for size, run_s in network.times_s.items() if size > 1}
        kinds = {CPU: Times(CPU_FACTOR * network.times_s[1], 0, 0)}
        times = Times(network.times_s[1], 0, 0, batches)
        functions[network.name] = FunctionSpec(network.name, times=times, times_by_kind=kinds, batch=max(batches))
    limits = {network.name: LIMIT_RUNS * network.times_s[1] for network in networks}
    rates = {one.name: load * GPUS / len(networks) / one.best_s(limits[one.name]) for one in networks}
    at, arrivals = 0.0, []
    for _ in range(calls):
        at += random.expovariate(sum(rates.values()))
        name = random.choices(list(rates), list(rates.values()))[0]
        run_s = draw_run_s(random, functions[name].times.run_s or 0, RUN_CV)
        arrivals.append(Arrival(round(at, 6), name, run_s=run_s, deadline_s=limits[name]))
    devices = [DeviceSpec(f"gpu-{number}", concurrency=1) for number in range(1, GPUS + 1)]
    devices.append(DeviceSpec(CPU, CPU, concurrency=CORES))
    return Scenario(devices, functions, ListedWorkload(arrivals))


def outcome(scenario: Scenario, policy: str) -> tuple[float, float]:
    """Return how many calls were in time, and what one of them cost, without the first ones."""
    lines: list[CallLine] = []
    simulate(scenario, settings_of(policy), on_end=lines.append)
    counted = sorted(lines, key=lambda line: line.arrived_s)[SKIPPED:]
    met = [line for line in counted if line.met]
    return len(met), sum(line.cost for line in met) / max(1, len(met))
