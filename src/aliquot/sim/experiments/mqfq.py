"""The experiment of the MQFQ-Sticky paper: its nine functions under every policy, and sweeps of its parameters.

The paper's traces are not published. Arrivals here are clustered (gamma, cv 3), and popularity falls as 1/rank.
"""

from collections.abc import Callable, Iterator, Sequence
from math import fsum

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec
from aliquot.core.units import GIB
from aliquot.policies.queueing import QUEUEING
from aliquot.sim.arrivals import ListedWorkload
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot.sim.report import report
from aliquot.sim.v100 import V100_FUNCTIONS
from aliquot.sim.workloads import WorkloadSpec, make_arrivals

LOADS = (0.6, 0.9, 1.3)
DEVICES = (1, 2)
DURATION_S = 600
POLICIES = tuple(QUEUEING)
CONCURRENCY = (1, 2, 3, 4)
OVERRUN_S = (0, 1, 2, 5, 10, 20)
ALPHA = (0.5, 1, 1.5, 2, 4)
SWEPT_LOAD = 0.9
POOL_SLOTS = 16  # sandboxes per device, for every policy, as in the published measurements

PUBLISHED = {  # mean latency relative to mqfq_sticky
    "fcfs": "1.2 to 6.7",
    "batch": "0.8 to 1.7",
}


class MqfqSetting(Struct, frozen=True):
    """The parameters of one simulation."""

    load: float
    devices: int
    concurrency: int = 2
    seed: int = 0


def mean_s(setting: MqfqSetting, policy: str, params: dict[str, float] | None = None) -> float:
    """Simulate a policy in a setting and return its mean latency."""
    spec = WorkloadSpec(
        load=setting.load,
        devices=setting.devices,
        duration_s=DURATION_S,
        process="gamma",
        cv=3,
        zipf=1,
        run_cv=0.2,
        seed=setting.seed,
    )
    devices = [
        DeviceSpec(f"gpu-{number}", memory_bytes=16 * GIB, concurrency=setting.concurrency)
        for number in range(1, setting.devices + 1)
    ]
    scenario = Scenario(
        devices,
        V100_FUNCTIONS,
        ListedWorkload(make_arrivals(V100_FUNCTIONS, spec)),
        interference=InterferenceCurve(V100_STRETCH),
        shared_bus=True,
    )
    own = {policy: {name: str(value) for name, value in (params or {}).items()}}
    recorder = simulate(scenario, PolicySettings(policy, params=own, pool_slots=POOL_SLOTS))
    return report(policy, setting.seed, recorder, devices).latency_s.mean or 0


class PolicyComparison(Struct, frozen=True):
    """Mean latencies of all policies for one load and number of devices, averaged over the seeds."""

    load: float
    devices: int
    means_s: dict[str, float]

    def ratio(self, policy: str) -> float:
        """Return a policy's mean latency relative to mqfq_sticky's."""
        return self.means_s[policy] / self.means_s["mqfq_sticky"]


def steps(seeds: int) -> int:
    """Return the number of simulations of a full reproduction."""
    compared = len(LOADS) * len(DEVICES) * len(POLICIES)
    return seeds * (compared + 2 * len(CONCURRENCY) + len(OVERRUN_S) + len(ALPHA))


def comparisons(seeds: Sequence[int], on_step: Callable[[], None]) -> Iterator[PolicyComparison]:
    """Simulate every policy for each number of devices and load. `on_step` is called before each simulation."""
    for devices in DEVICES:
        for load in LOADS:
            means = {}
            for policy in POLICIES:
                values = []
                for seed in seeds:
                    on_step()
                    values.append(mean_s(MqfqSetting(load, devices, seed=seed), policy))
                means[policy] = fsum(values) / len(values)
            yield PolicyComparison(load, devices, means)


def sweeps(seeds: Sequence[int], on_step: Callable[[], None]) -> list[PlotPanel]:
    """Measure mean latency against D, T and alpha, on one device at high load."""

    def averaged(concurrency: int, policy: str, params: dict[str, float]) -> float:
        values = []
        for seed in seeds:
            on_step()
            values.append(mean_s(MqfqSetting(SWEPT_LOAD, 1, concurrency, seed), policy, params))
        return fsum(values) / len(values)

    by_d = [
        PlotLine(policy, CONCURRENCY, [averaged(d, policy, {}) for d in CONCURRENCY])
        for policy in ("mqfq_sticky", "fair_resident")
    ]
    by_t = [PlotLine("mqfq_sticky", OVERRUN_S, [averaged(2, "mqfq_sticky", {"T": t}) for t in OVERRUN_S])]
    by_alpha = [PlotLine("mqfq_sticky", ALPHA, [averaged(2, "mqfq_sticky", {"alpha": alpha}) for alpha in ALPHA])]
    return [
        PlotPanel("D: how many at once (published best: 2)", "D", "mean latency, s", by_d),
        PlotPanel("T: how far ahead (published: 12.9 s at 0, 3.8 s at 5)", "T, s", "mean latency, s", by_t),
        PlotPanel("Anticipation (published best: 1.5)", "alpha, mean inter-arrival times", "mean latency, s", by_alpha),
    ]


def panels(compared: Sequence[PolicyComparison]) -> Iterator[PlotPanel]:
    """Yield a chart of mean latency against load for each number of devices."""
    for devices in DEVICES:
        on_devices = [comparison for comparison in compared if comparison.devices == devices]
        lines = [
            PlotLine(policy, [one.load for one in on_devices], [one.means_s[policy] for one in on_devices])
            for policy in ("fcfs", "batch", "sjf", "affinity", "mqfq_sticky", "fair_resident")
        ]
        yield PlotPanel(
            f"Policies on {devices} device{'s' if devices > 1 else ''}", "offered load", "mean latency, s", lines
        )
