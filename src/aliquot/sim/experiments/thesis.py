"""The experiments of chapter 6 of the Kernel-as-a-Service thesis: printed schedules, cold starts and sweeps.

These settings reproduce every printed trace: one call at a time per device, unbounded memory, and time steps of cold 4
+ run 2 for ResNet and cold 10 + run 8 for BERT. The constants in the text, 5/5 and 10/20, do not. For a given load, all
clients submit equal parts of the work, so that "the number of requests reduces" as run times or clients grow.
"""

from collections.abc import Callable, Iterator, Sequence
from math import fsum

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.plots import PlotLine, PlotPanel
from aliquot.sim.recorder import DispatchLine
from aliquot.sim.report import RunReport, report
from aliquot.sim.workloads import WorkloadSpec, make_arrivals

RESNET = FunctionSpec("resnet", times=Times(run_s=2, cold_s=4, load_s=0))
BERT = FunctionSpec("bert", times=Times(run_s=8, cold_s=10, load_s=0))
STEPS = 1000
LOAD = 0.8
POLICIES = ("round_robin", "balance", "srtf", "mlfq", "exclusive")
PRINTED_SEED = 5  # with it mlfq_clairvoyant draws ResNet three times, as in the printed trace

TRACE = ListedWorkload(
    [
        Arrival(0, "resnet", "client1"),
        Arrival(1, "bert", "client2"),
        Arrival(2, "resnet", "client1"),
        Arrival(3, "resnet", "client1"),
    ]
)


class PublishedTrace(Struct, frozen=True):
    """One printed trace. `R0 -> 0,1` means that the ResNet call of step 0 is dispatched at step 0 to device 1."""

    policy: str
    schedule: str
    total_s: float
    cold: int
    hits: int
    mean_wait_s: float
    resnet_wait_s: float
    bert_wait_s: float


_AS_BALANCE = ("R0 -> 0,1; B1 -> 1,2; R2 -> 6,1; R3 -> 8,1", 19, 2, 2, 2.25, 3.0, 0)
_AS_CLAIRVOYANT = ("R0 -> 0,1; R2 -> 2,2; R3 -> 6,1; B1 -> 8,2", 26, 3, 1, 2.5, 1.0, 7.0)
PUBLISHED = (
    PublishedTrace("round_robin", "R0 -> 0,1; B1 -> 1,2; R2 -> 6,1; R3 -> 19,2", 25, 3, 1, 5.0, 6.67, 0),
    PublishedTrace("balance", *_AS_BALANCE),
    PublishedTrace("srtf_clairvoyant", *_AS_CLAIRVOYANT),
    PublishedTrace("mlfq_clairvoyant", *_AS_CLAIRVOYANT),
    PublishedTrace("exclusive", *_AS_BALANCE),
)
PUBLISHED_COLD_STARTS = {"round_robin": 8, "balance": 8, "srtf": 8, "mlfq": 8, "exclusive": 4}
PUBLISHED_SRTF_BERT_WAIT_S = 80.65
SRTF_BERT_WAIT_RANGE_S = (55, 110)  # range with srtf_clairvoyant over about 100 steps


def make_devices(count: int) -> list[DeviceSpec]:
    return [DeviceSpec(f"gpu-{number}", concurrency=1) for number in range(1, count + 1)]


def printed_trace(policy: str) -> PublishedTrace:
    """Simulate the four-call example on two devices under one policy."""
    lines: list[DispatchLine] = []
    scenario = Scenario(make_devices(2), {"resnet": RESNET, "bert": BERT}, TRACE)
    seed = PRINTED_SEED if policy == "mlfq_clairvoyant" else 0
    run = report(
        policy, seed, simulate(scenario, PolicySettings(policy, seed=seed), on_dispatch=lines.append), scenario.devices
    )
    return PublishedTrace(
        policy,
        "; ".join(
            f"{line.function[0].upper()}{line.arrived_s} -> {line.time_s},{line.device.removeprefix('gpu-')}"
            for line in lines
        ),
        run.makespan_s,
        run.cold_starts,
        run.completed - run.cold_starts,
        _wait(run),
        round(_wait(run, "resnet"), 2),
        _wait(run, "bert"),
    )


def poisson_run(policy: str, *, seed: int = 0, steps: int = STEPS, rebalance: bool = False) -> RunReport:
    """Simulate four devices at 80 % load, the setting of the cold-start figure."""
    params = {"exclusive": {"rebalance": "true"}} if rebalance else {}
    settings = PolicySettings(policy, params=params, seed=seed)
    return _simulate([RESNET, BERT], settings, devices=4, load=LOAD, steps=steps)


class Sweep(Struct, frozen=True):
    """One figure: mean time on queue against a parameter."""

    title: str
    x_label: str
    xs: tuple[float, ...]
    mean_wait_s: Callable[[float, PolicySettings], float]


def _by_rate(x: float, settings: PolicySettings) -> float:
    return _wait(_simulate([RESNET, BERT], settings, devices=3, load=x))


def _by_devices(x: float, settings: PolicySettings) -> float:
    return _wait(_simulate([RESNET, BERT], settings, devices=int(x), load=LOAD))


def _by_cold(x: float, settings: PolicySettings) -> float:
    return _wait(_simulate([_with(RESNET, cold=x), _with(BERT, cold=x)], settings, devices=4, load=LOAD))


def _by_run(x: float, settings: PolicySettings) -> float:
    return _wait(_simulate([_with(RESNET, run=x), _with(BERT, run=4 * x)], settings, devices=4, load=LOAD))


def _by_clients(x: float, settings: PolicySettings) -> float:
    models = [(RESNET, BERT)[number % 2] for number in range(int(x))]
    clients = [FunctionSpec(f"{model.name}{number}", times=model.times) for number, model in enumerate(models)]
    return _wait(_simulate(clients, settings, devices=4, load=LOAD))


SWEEPS = (
    Sweep("Arrival rate (3 devices)", "offered load", (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1), _by_rate),
    Sweep("Devices (80 % load)", "devices", (1, 2, 3, 4, 6, 8, 12), _by_devices),
    Sweep("Cold start (80 % load, 4 devices)", "cold start, steps", (0, 5, 10, 20, 40), _by_cold),
    Sweep("Run time (80 % load, 4 devices)", "ResNet's run time, steps (BERT's: 4x)", (1, 2, 4, 8), _by_run),
    Sweep("Clients (80 % load, 4 devices)", "clients", (2, 4, 6, 8, 12), _by_clients),
)


def sweep_points() -> int:
    """Return the number of simulations per seed of all sweeps."""
    return sum(len(sweep.xs) for sweep in SWEEPS) * len(POLICIES)


def sweep_panels(seeds: Sequence[int], on_point: Callable[[], None]) -> Iterator[PlotPanel]:
    """Run every sweep under the five policies. Each point is the mean over the seeds."""
    for sweep in SWEEPS:
        lines = []
        for policy in POLICIES:
            ys = []
            for x in sweep.xs:
                waits = []
                for seed in seeds:
                    waits.append(sweep.mean_wait_s(x, PolicySettings(policy, seed=seed)))
                    on_point()
                ys.append(fsum(waits) / len(waits))
            lines.append(PlotLine(policy, sweep.xs, ys))
        yield PlotPanel(sweep.title, sweep.x_label, "mean steps on queue", lines)


def _simulate(
    functions: Sequence[FunctionSpec],
    settings: PolicySettings,
    *,
    devices: int,
    load: float,
    steps: int = STEPS,
) -> RunReport:
    by_name = {function.name: function for function in functions}
    spec = WorkloadSpec(load=load, devices=devices, duration_s=steps, even_work=True, step_s=1, seed=settings.seed)
    scenario = Scenario(make_devices(devices), by_name, ListedWorkload(make_arrivals(by_name, spec)))
    return report(settings.queueing, settings.seed, simulate(scenario, settings), scenario.devices)


def _with(model: FunctionSpec, *, run: float | None = None, cold: float | None = None) -> FunctionSpec:
    times = model.times
    return FunctionSpec(
        model.name,
        times=Times(times.run_s if run is None else run, times.cold_s if cold is None else cold, 0),
    )


def _wait(run: RunReport, function: str | None = None) -> float:
    summary = run.wait_s if function is None else run.per_function[function].wait_s
    return summary.mean or 0
