"""The memory-bound setting of the fairness benchmark: clients whose models fill the devices' memory, or exceed it.

The constants are published for kernels as a service: 4 devices of 15.7 GiB, models of 2 GiB that run for 45.5 ms and
are loaded in 203 ms. Two calls at once on a device take twice as long, so D = 2 only overlaps loading with running. 28
clients fit at once. Calls arrive at 0.9 of the devices' capacity, with equal shares for all clients.
"""

from random import Random

from aliquot.core.model import DeviceSpec, FunctionSpec, Times
from aliquot.core.units import GIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.contention import InterferenceCurve
from aliquot.sim.engine import Scenario
from aliquot.sim.report import RunReport
from aliquot.sim.workloads import MICROSECONDS

CLIENTS = (28, 32, 48)
CALLS_PER_S = 79
DURATION_S = 60
DEVICE_BYTES = round(15.7 * GIB)


def memory_bound(clients: int, seed: int, duration_s: float = DURATION_S) -> Scenario:
    """Return the scenario with so many clients, each a function of its own."""
    times = Times(run_s=0.0455, cold_s=0.5, load_s=0.203)
    functions = {f"client-{n}": FunctionSpec(f"client-{n}", 2 * GIB, times=times) for n in range(clients)}
    random = Random(f"{seed}/memory bound")
    arrivals, time_s = [], 0.0
    while (time_s := time_s + random.expovariate(CALLS_PER_S)) < duration_s:
        arrivals.append(Arrival(round(time_s, MICROSECONDS), f"client-{random.randrange(clients)}"))
    return Scenario(
        [DeviceSpec(f"gpu-{number}", memory_bytes=DEVICE_BYTES) for number in range(1, 5)],
        functions,
        ListedWorkload(arrivals),
        interference=InterferenceCurve({1: 1, 2: 2}),
    )


def completed_part(run: RunReport, duration_s: float = DURATION_S) -> float:
    """Return the rate of completed calls, up to the end of the last one, as a part of the offered rate."""
    return duration_s / max(run.makespan_s, duration_s)


def longest_wait(run: RunReport) -> float:
    """Return the largest mean wait of a client, as a multiple of the mean of all clients."""
    waits = [group.wait_s.mean or 0 for group in run.per_function.values()]
    return max(waits) * len(waits) / sum(waits) if any(waits) else 1.0
