"""The built-in workload: four tenants with different arrival patterns on two GPUs.

The functions are those of `v100.py`, and concurrent runs slow each other down by the published interference curve.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from aliquot.core.model import DeviceSpec, FunctionSpec
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario
from aliquot.sim.v100 import V100_FUNCTIONS
from aliquot.sim.workloads import WorkloadSpec, make_arrivals

POLICIES = ("fcfs", "batch", "sjf", "affinity", "mqfq_sticky", "fair_resident")
DEVICES = 2
POOL_SLOTS = 16  # sandboxes per device, for every policy


def _functions(*names: str) -> list[FunctionSpec]:
    return [V100_FUNCTIONS[name] for name in names]


TENANTS: dict[str, tuple[list[FunctionSpec], WorkloadSpec]] = {
    "shop": (  # a web shop: short calls in bursts
        _functions("imagenet", "roberta"),
        WorkloadSpec(load=0.35, process="bursty", on_s=20, off_s=60),
    ),
    "studio": (  # a video studio: long calls at a steady rate
        _functions("ffmpeg"),
        WorkloadSpec(load=0.3),
    ),
    "lab": (  # a laboratory: several kernels, clustered
        _functions("lud", "needle", "pathfinder", "myocyte"),
        WorkloadSpec(load=0.35, process="gamma", cv=3),
    ),
    "edge": (  # sensors: many short calls
        _functions("isoneural", "fft"),
        WorkloadSpec(load=0.25),
    ),
}


def scenario(*, duration_s: float, seed: int) -> Scenario:
    functions = {function.name: function for members, _ in TENANTS.values() for function in members}
    devices = [DeviceSpec(f"gpu-{number}", memory_bytes=16 * GIB) for number in range(1, DEVICES + 1)]
    return Scenario(
        devices, functions, ListedWorkload(_arrivals(duration_s, seed)), interference=InterferenceCurve(V100_STRETCH)
    )


def _arrivals(duration_s: float, seed: int) -> Iterator[Arrival]:
    for tenant, (members, spec) in TENANTS.items():
        own = replace(spec, devices=DEVICES, duration_s=duration_s, even_work=True, run_cv=0.2, seed=seed)
        for arrival in make_arrivals({function.name: function for function in members}, own):
            yield arrival._replace(tenant=tenant)
