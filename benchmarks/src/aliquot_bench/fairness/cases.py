"""The cases of the fairness benchmark: real arrivals at a given load on a given number of devices."""

from pathlib import Path

from msgspec import Struct

from aliquot.core.model import DeviceSpec
from aliquot.core.units import GIB
from aliquot.sim.arrivals import ListedWorkload
from aliquot.sim.contention import V100_STRETCH, InterferenceCurve
from aliquot.sim.engine import Scenario
from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.importers.scaling import measure, rescale, time_scale

LOADS = (0.6, 0.9, 1.3)
DEVICES = (1, 2, 4)
MANY_FLOWS = 10  # the goals hold for traces with at least this many flows
DAY_S = 86_400

# The start time in each trace, in a busy period. The time axis is then scaled to the load.
SETS: dict[str, float] = {
    "azure_functions": 0,
    "servegen": 10 * 3600,
    "philly": 30 * DAY_S,
    "azure_llm": 0,
    "mooncake": 0,
}


class FairnessCase(Struct, frozen=True):
    """One trace at one load on so many devices."""

    set_name: str
    load: float
    devices: int
    seed: int


def make_scenario(case: FairnessCase, data: Path, calls: int) -> tuple[Scenario, int]:
    """Return the scenario of a case and its number of flows.

    Devices have 16 GiB, two slots, the interference of a V100, and a shared bus.
    """
    request = ImportRequest(data, start_s=SETS[case.set_name], calls=calls, seed=case.seed)
    imported = IMPORTERS[case.set_name](request)
    arrivals = list(imported.arrivals)
    measured = measure(arrivals, imported.functions)
    scale = time_scale(measured, case.load, case.devices)
    devices = [DeviceSpec(f"gpu-{number}", memory_bytes=16 * GIB) for number in range(1, case.devices + 1)]
    workload = ListedWorkload(rescale(arrivals, scale))
    scenario = Scenario(
        devices, imported.functions, workload, interference=InterferenceCurve(V100_STRETCH), shared_bus=True
    )
    return scenario, len(measured.flows)
