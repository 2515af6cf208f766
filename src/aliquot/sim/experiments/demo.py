"""The built-in workload: four tenants on two GPUs, each with its own manners.

Run and cold times are the published ones of a V100 (warm, and cold total less warm); memory sizes are not published
and chosen here. Two invocations at once on a device stretch each other by the published curve.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot.sim.interference import V100, Curve
from aliquot.sim.traces import MIB
from aliquot.sim.workloads import Recipe, make_arrivals

GIB = 2**30
BYTES_PER_S = 12 * GIB  # host to device
POLICIES = ("fcfs", "batch", "sjf", "affinity", "mqfq_sticky", "fair_resident")
DEVICES = 2


def _function(name: str, warm_s: float, cold_total_s: float, memory_mib: int) -> FunctionSpec:
    """The start of a cold call is what it takes longer than a warm one."""
    cold_s = round(max(0.0, cold_total_s - warm_s), 3)
    load_s = round(memory_mib * MIB / BYTES_PER_S, 3)
    return FunctionSpec(name, memory_mib * MIB, times=Times(warm_s, cold_s, load_s))


TENANTS: dict[str, tuple[list[FunctionSpec], Recipe]] = {
    "shop": (  # a web shop: short calls in bursts
        [_function("imagenet", 2.25, 8.58, 3500), _function("roberta", 0.268, 16.4, 2500)],
        Recipe(load=0.35, process="bursty", on_s=20, off_s=60),
    ),
    "studio": (  # video: long calls, steady
        [_function("ffmpeg", 4.48, 12.0, 1500)],
        Recipe(load=0.3),
    ),
    "lab": (  # science: several kernels, clustered
        [
            _function("lud", 2.05, 2.13, 2000),
            _function("needle", 1.98, 2.29, 4000),
            _function("pathfinder", 1.47, 2.00, 3000),
            _function("myocyte", 2.78, 2.78, 1000),
        ],
        Recipe(load=0.35, process="gamma", cv=3),
    ),
    "edge": (  # sensors: many tiny calls
        [_function("isoneural", 0.026, 2.59, 1000), _function("fft", 0.897, 2.65, 2500)],
        Recipe(load=0.25),
    ),
}


def scenario(*, duration_s: float, seed: int) -> Scenario:
    functions = {function.name: function for members, _ in TENANTS.values() for function in members}
    devices = [DeviceSpec(f"gpu-{number}", memory_bytes=16 * GIB) for number in range(1, DEVICES + 1)]
    return Scenario(devices, functions, ListedWorkload(_arrivals(duration_s, seed)), interference=Curve(V100))


def _arrivals(duration_s: float, seed: int) -> Iterator[Arrival]:
    for tenant, (members, recipe) in TENANTS.items():
        own = replace(recipe, devices=DEVICES, duration_s=duration_s, even_work=True, run_cv=0.2, seed=seed)
        for arrival in make_arrivals({function.name: function for function in members}, own):
            yield arrival._replace(tenant=tenant)
