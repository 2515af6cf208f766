"""Contention in the simulator, with the published constants: models that fill the devices' memory or exceed it."""

from collections.abc import Callable, Sequence
from statistics import fmean

from aliquot.config import PolicySettings
from aliquot.sim.engine import simulate
from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot.sim.report import report
from aliquot_bench.fairness.memory_bound import CALLS_PER_S, CLIENTS, completed_part, memory_bound
from aliquot_bench.kernels.part import KernelSizes
from aliquot_bench.result import PERCENT, Goal, ResultTable, at_least

FIRST_SEED = 7
POLICIES = {
    "fair_resident": PolicySettings("fair_resident"),
    "affinity": PolicySettings("affinity"),
    "balance + lru": PolicySettings("balance", eviction="lru"),
}
OURS = "fair_resident"
GOALS = {28: 95, 32: 75, 48: 50}
PUBLISHED = {28: 88.0, 32: 16.0}  # requests a second, the curve of Kernels as a Service


class SimulatedPart:
    """The part `simulated contention`."""

    name = "simulated contention"
    steps = len(CLIENTS)

    def __init__(self, sizes: KernelSizes) -> None:
        self._sizes = sizes
        self._rates: dict[str, dict[int, float]] = {name: {} for name in POLICIES}
        self._swaps: dict[str, dict[int, float]] = {name: {} for name in POLICIES}

    def run(self, on_step: Callable[[str], None]) -> None:
        for clients in CLIENTS:
            on_step(f"{clients} simulated clients")
            for name, settings in POLICIES.items():
                runs = []
                for seed in range(FIRST_SEED, FIRST_SEED + self._sizes.simulated_seeds):
                    scenario = memory_bound(clients, seed, self._sizes.simulated_s)
                    runs.append(report(name, seed, simulate(scenario, settings), scenario.devices))
                part = fmean(completed_part(run, self._sizes.simulated_s) for run in runs)
                self._rates[name][clients] = CALLS_PER_S * part
                self._swaps[name][clients] = fmean(run.swap_ins for run in runs)

    def goals(self) -> Sequence[Goal]:
        return [
            at_least(
                f"simulated contention: {clients} clients, of the offered {CALLS_PER_S} calls a second",
                PERCENT * self._rates[OURS][clients] / CALLS_PER_S, wanted, "%",
            )
            for clients, wanted in GOALS.items()
        ]  # fmt: skip

    def tables(self) -> Sequence[ResultTable]:
        rows: list[list[str | float | None]] = [
            [name, *rates.values(), *self._swaps[name].values()] for name, rates in self._rates.items()
        ]
        rows.append(["Kernels as a Service (published)", *(PUBLISHED.get(clients) for clients in CLIENTS), *[None] * 3])
        columns = ["", *(f"{clients} clients" for clients in CLIENTS), *(f"swaps, {clients}" for clients in CLIENTS)]
        title = f"Simulated contention: calls a second of {CALLS_PER_S} offered; 28 clients fit on the devices"
        assumed = (
            "4 devices of 15.7 GiB, models of 2 GiB that run 45.5 ms and are loaded in 203 ms, D = 2 without a gain"
        )
        return [ResultTable(title, columns, rows, assumed)]

    def panels(self) -> Sequence[PlotPanel]:
        lines = [PlotLine(name, list(rates), list(rates.values())) for name, rates in self._rates.items()]
        lines.append(PlotLine("published", list(PUBLISHED), list(PUBLISHED.values())))
        return [PlotPanel("Simulated contention", "clients", "calls a second", lines)]
