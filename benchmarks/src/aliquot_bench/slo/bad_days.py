"""Cases of bad days: runs that take four times as long, too little memory, and a neighbour's flood of calls."""

from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from pathlib import Path
from random import Random

from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario
from aliquot.sim.importers import IMPORTERS
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.importers.scaling import measure as measure_trace
from aliquot.sim.importers.scaling import rescale, time_scale

MICROSECONDS = 6
OUTLIERS = 0.005  # part of the runs
OUTLIER_FACTOR = 4
FLOWS, RESIDENT = 200, 40  # functions, and how many of them the devices hold
LIMIT_S = 0.1
VICTIM, NEIGHBOUR = "victim", "neighbour"
RUN_S = 0.01


def with_outliers(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with a few runs that take four times as long."""
    random = Random(f"{seed}/outliers")
    arrivals = [
        call._replace(run_s=OUTLIER_FACTOR * (call.run_s or scenario.functions[call.function].times.run_s or 0))
        if random.random() < OUTLIERS
        else call
        for call in scenario.workload
    ]
    return Scenario(scenario.devices, scenario.functions, ListedWorkload(arrivals))


def many_flows(data: Path, calls: int, load: float, seed: int) -> Scenario:
    """Return 200 functions whose calls come as in the Azure trace, on four devices with memory for 40 of them."""
    imported = IMPORTERS["azure_functions"](
        ImportRequest(data, profile="mqfq", flows=FLOWS, start_s=4 * 3600, calls=calls, seed=seed)
    )
    listed = [call._replace(tenant="default", run_s=None, deadline_s=LIMIT_S) for call in imported.arrivals]
    functions = {
        name: FunctionSpec(name, GIB, times=Times(RUN_S, 0.5, 0.012))
        for name in dict.fromkeys(c.function for c in listed)
    }
    devices = [DeviceSpec(f"gpu-{n}", memory_bytes=RESIDENT // 4 * GIB, concurrency=1) for n in range(1, 5)]
    scale = time_scale(measure_trace(listed, functions), load, len(devices))
    return Scenario(devices, functions, ListedWorkload(rescale(listed, scale)))


def beside_a_neighbour(lanes: int, seconds: float, seed: int, *, flood: bool) -> Scenario:
    """Return a tenant at half of its share, alone on `lanes` lanes, or on twice as many beside a neighbour's flood.

    Its calls are promised and plain in turn. The neighbour's calls come at four times the load of all lanes.
    """
    times = Times(RUN_S, 0, 0)
    functions = {name: FunctionSpec(name, times=times) for name in ("promised", "plain", "tight")}
    lanes_there = 2 * lanes if flood else lanes
    rate = lanes / 2 / RUN_S
    streams = [
        _poisson("promised", VICTIM, rate / 2, seconds, 10 * RUN_S, seed),
        _poisson("plain", VICTIM, rate / 2, seconds, None, seed),
    ]
    if flood:
        streams.append(_poisson("tight", NEIGHBOUR, 4 * lanes_there / RUN_S, seconds, 2.5 * RUN_S, seed))
    devices = [DeviceSpec(f"gpu-{number}", concurrency=1) for number in range(1, lanes_there + 1)]
    return Scenario(devices, functions, ListedWorkload(merge(*streams, key=itemgetter(0))))


def _poisson(
    function: str, tenant: str, rate: float, seconds: float, limit_s: float | None, seed: int
) -> Iterator[Arrival]:
    random = Random(f"{seed}/{function}")
    now_s = 0.0
    while (now_s := now_s + random.expovariate(rate)) < seconds:
        yield Arrival(round(now_s, MICROSECONDS), function, tenant, deadline_s=limit_s)
