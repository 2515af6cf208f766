"""The cases of the fairness benchmark: arrivals at a given load on devices of a given shape.

The parameters of `fair_resident` were chosen on other parts of these traces and on other seeds: the first hour of
`azure_functions`, `servegen` from its tenth hour, and Poisson arrivals. The cases here were held back.
"""

from itertools import islice
from pathlib import Path

from msgspec import Struct

from aliquot.core.model import DeviceSpec, FunctionSpec
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario
from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.importers.scaling import measure, rescale, time_scale
from aliquot.sim.workloads import WorkloadSpec, make_arrivals, make_functions

LOADS = (0.3, 0.6, 0.85, 1.3)  # as parts of what the devices can complete; the last is a true overload
OVERLOAD = LOADS[-1]
POOL_SLOTS = 16  # sandboxes per device, for every policy, as in the published measurements of mqfq_sticky
FIRST_SEED = 7
FUNCTIONS_PER_DEVICE = 12  # of the generated set
MAX_FUNCTIONS = 600

# The start time in each trace. The time axis is then scaled to the load.
SETS: dict[str, float] = {"azure_functions": 5 * 3600, "servegen": 60 * 3600, "generated": 0}


class DeviceShape(Struct, frozen=True):
    """So many equal devices of one node, with D slots and so much memory each. Host memory may be bounded, too."""

    devices: int
    concurrency: int
    memory_gib: int
    host_gib: int | None = None

    @property
    def capacity(self) -> float:
        """Return the work that all devices complete in a second, if none of it is spent on starts."""
        curve = InterferenceCurve(V100_STRETCH)
        return self.devices * max(k / curve.stretch(k) for k in range(1, self.concurrency + 1))

    @property
    def name(self) -> str:
        host = "" if self.host_gib is None else f", host {self.host_gib} GiB"
        return f"{self.devices}, D = {self.concurrency}, {self.memory_gib} GiB{host}"


ONE_DEVICE = DeviceShape(1, 1, 16)
COMMON_SHAPE = DeviceShape(2, 2, 16)
HOST_BOUND = DeviceShape(2, 2, 16, host_gib=48)  # a sandbox that is swapped out stays in host memory
MANY_DEVICES = DeviceShape(16, 2, 16)
SHAPES = (ONE_DEVICE, COMMON_SHAPE, HOST_BOUND, DeviceShape(4, 4, 64), MANY_DEVICES, DeviceShape(64, 2, 16))
QUICK_SHAPES = (ONE_DEVICE, COMMON_SHAPE, MANY_DEVICES)
CALLS = {1: 1000, 2: 1200, 4: 1500, 16: 2500, 64: 5000}  # by number of devices


class FairnessCase(Struct, frozen=True):
    """One set of arrivals at one load on devices of one shape."""

    set_name: str
    load: float
    shape: DeviceShape
    seed: int


def make_scenario(case: FairnessCase, data: Path) -> tuple[Scenario, int]:
    """Return the scenario of a case and its number of flows.

    Runs on one device slow each other down as on a V100, and transfers to it share its bus.
    """
    functions, arrivals = _arrivals(case, data)
    measured = measure(arrivals, functions)
    scale = time_scale(measured, case.load * case.shape.capacity, 1)
    devices = [
        DeviceSpec(f"gpu-{number}", memory_bytes=case.shape.memory_gib * GIB, concurrency=case.shape.concurrency)
        for number in range(1, case.shape.devices + 1)
    ]
    workload = ListedWorkload(rescale(arrivals, scale))
    curve = InterferenceCurve(V100_STRETCH)
    host_bytes = None if case.shape.host_gib is None else case.shape.host_gib * GIB
    scenario = Scenario(devices, functions, workload, interference=curve, shared_bus=True, host_memory_bytes=host_bytes)
    return scenario, len(measured.flows)


def _arrivals(case: FairnessCase, data: Path) -> tuple[dict[str, FunctionSpec], list[Arrival]]:
    calls = CALLS[case.shape.devices]
    if case.set_name == "generated":
        functions = make_functions(min(MAX_FUNCTIONS, 12 + FUNCTIONS_PER_DEVICE * case.shape.devices), case.seed)
        spec = WorkloadSpec(load=1, duration_s=1e9, process="gamma", zipf=1, run_cv=0.3, seed=case.seed)
        return functions, list(islice(make_arrivals(functions, spec), calls))
    imported = IMPORTERS[case.set_name](ImportRequest(data, start_s=SETS[case.set_name], calls=calls, seed=case.seed))
    return imported.functions, list(imported.arrivals)


def many_devices(devices: int, calls: int) -> Scenario:
    """Return a scenario of 1000 functions on devices of eight kinds, at an offered load of 0.5."""
    functions = make_functions(1000, FIRST_SEED)
    spec = WorkloadSpec(load=0.5, devices=devices, duration_s=1e9, zipf=1, run_cv=0.3, seed=FIRST_SEED)
    kinds = [(f"kind-{number % 8}", 1 + (number % 8) / 10) for number in range(devices)]
    return Scenario(
        [DeviceSpec(f"gpu-{n}", kind, 16 * GIB, speed=speed) for n, (kind, speed) in enumerate(kinds, start=1)],
        functions,
        ListedWorkload(islice(make_arrivals(functions, spec), calls)),
        interference=InterferenceCurve(V100_STRETCH),
    )
