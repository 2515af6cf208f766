"""Packing: where a new slice goes, in the simulator, on mixes of slices: does room for large ones stay?"""

from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean

from msgspec import Struct

from aliquot.bench.result import Goal, Rows
from aliquot.bench.sharing.part import Sizes
from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.policies.packing import PACKING
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.plots import Panel

GIB = 2**30
DEVICES, FUNCTIONS = 8, 60
LOADS = (0.7, 0.9)
LARGE = 0.5  # a slice from here on is hard to place
POLICY = "fair_resident"
# The shares that functions ask for, each as likely.
MIXES: dict[str, Sequence[float]] = {
    "small": (0.05, 0.1, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5),
    "mixed": (0.1, 0.1, 0.1, 0.2, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0),
    "large": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
}
MEMORY_GIB = (0.25, 0.5, 1, 2, 4, 8)
P99 = 0.99


class Latencies(Struct, frozen=True):
    """Seconds, of all calls and of those with large slices."""

    mean: float
    p99: float
    large_mean: float
    large_p99: float


def make_scenario(mix: str, load: float, calls: int, seed: int) -> Scenario:
    """Devices of 16 GiB; what calls ask for, share by time, adds up to the load."""
    random = Random(seed)
    functions = {}
    for number in range(FUNCTIONS):
        share, memory = random.choice(MIXES[mix]), int(random.choice(MEMORY_GIB) * GIB)
        times = Times(random.lognormvariate(0, 0.6), 0.5, 0.1)
        functions[f"f{number}"] = FunctionSpec(f"f{number}", memory, share, times)
    each = fmean((function.share or 0) * (function.times.run_s or 0) for function in functions.values())
    per_second = load * DEVICES / each
    now, arrivals, names = 0.0, [], list(functions)
    for _ in range(calls):
        now += random.expovariate(per_second)
        function = functions[random.choice(names)]
        run_s = (function.times.run_s or 0) * random.lognormvariate(0, 0.3)
        arrivals.append(Arrival(now, function.name, "default", run_s=run_s))
    devices = [DeviceSpec(f"gpu-{number}", "gpu", 16 * GIB, 100) for number in range(DEVICES)]
    return Scenario(devices, functions, ListedWorkload(arrivals))


def latencies(scenario: Scenario, packing: str) -> Latencies:
    flows = simulate(scenario, PolicySettings(POLICY, packing=packing)).flows
    every: list[float] = []
    large: list[float] = []
    for key, record in flows.items():
        every += record.latency_s
        if (scenario.functions[key.function].share or 0) >= LARGE:
            large += record.latency_s
    return Latencies(fmean(every), p99(every), fmean(large or [0.0]), p99(large or [0.0]))


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(P99 * len(values))]


class PackingPart:
    name = "packing"
    on_device = False

    def __init__(self, sizes: Sizes) -> None:
        self._calls, self._seeds = sizes.packing_calls, sizes.packing_seeds
        self._found: dict[tuple[str, float, str], list[Latencies]] = {}
        self.steps = len(MIXES) * len(LOADS) * sizes.packing_seeds

    def run(self, on_step: Callable[[str], None]) -> str:
        for seed in range(1, self._seeds + 1):
            for mix in MIXES:
                for load in LOADS:
                    on_step(f"packing: {mix} slices at {load}, seed {seed}")
                    scenario = make_scenario(mix, load, self._calls, seed)
                    for packing in PACKING:
                        self._found.setdefault((mix, load, packing), []).append(latencies(scenario, packing))
        return ""

    def goals(self) -> list[Goal]:
        return []

    def tables(self) -> list[Rows]:
        rows: list[list[str | float | None]] = [
            [
                *(mix, load, packing),
                *(fmean(getattr(each, field) for each in found) for field in Latencies.__struct_fields__),
            ]
            for (mix, load, packing), found in self._found.items()
        ]
        title = (
            f"Packing in the simulator: latency in s under {POLICY} on {DEVICES} devices, {self._calls} calls of"
            f" {FUNCTIONS} functions, mean of {self._seeds} seeds; large slices are those of {LARGE:g} and more"
        )
        return [Rows(title, ["slices", "load", "packing", "mean", "p99", "mean, large", "p99, large"], rows)]

    def panels(self) -> list[Panel]:
        return []
