"""Small random instances for which the offline optimum is known: nine calls, a GPU lane and a CPU lane, batches of 3.

Run times are exact. The calls of all instances of a group run in one simulation, far apart from each other, so that
the estimates have learned the times of all sizes before the first instance counts.
"""

from collections.abc import Iterator
from random import Random

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.model import CPU, DeviceSpec, FunctionSpec, Times
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.recorder import CallLine
from aliquot_bench.slo.optimum import OfflineCall, RunTime, most_in_time

CALLS = 9
MAX_BATCH = 3
APART_S = 10.0
LEARNING = 40  # instances before the first that counts
ALIKE, LIMITS, MIXED = "all calls alike", "mixed limits", "all mixed"
GROUPS = (ALIKE, LIMITS, MIXED)
GPU_S = {"small": 0.010, "middle": 0.016, "large": 0.025}
BATCH_GAIN = 0.4  # each further call adds this part of the time of the first
CPU_FACTOR = 3


class Instance(Struct, frozen=True):
    """The calls of one instance, counted from its begin."""

    calls: tuple[OfflineCall, ...]


def make_instances(group: str, count: int, seed: int) -> list[Instance]:
    """Draw instances of a group, with about twice the work that the lanes can complete."""
    random = Random(f"{seed}/{group}")
    return [Instance(tuple(sorted(_calls(group, random), key=lambda call: call.arrives_s))) for _ in range(count)]


def _calls(group: str, random: Random) -> Iterator[OfflineCall]:
    for _ in range(CALLS):
        function = random.choice(list(GPU_S)) if group == MIXED else "small"
        arrives_s = round(random.uniform(0, 0.04 if group != MIXED else 0.06), 4)
        limit_s = round(0.035 if group == ALIKE else random.uniform(1.2, 6) * GPU_S[function], 4)
        yield OfflineCall(arrives_s, round(arrives_s + limit_s, 4), function)


def optimum(instances: list[Instance]) -> int:
    """Return how many calls of all instances could have been in time."""
    lanes: list[RunTime] = [gpu_s, cpu_s]
    return sum(most_in_time(instance.calls, lanes, MAX_BATCH) for instance in instances)


def gpu_s(function: str, size: int) -> float:
    return round(GPU_S[function] * (1 + BATCH_GAIN * (size - 1)), 6)


def cpu_s(function: str, size: int) -> float:
    return round(GPU_S[function] * CPU_FACTOR * size, 6)


def in_time(instances: list[Instance], settings: PolicySettings) -> int:
    """Return how many calls of all instances end in time under a policy, after as many others to learn from."""
    learned = [*instances[-LEARNING:], *instances]
    arrivals = [
        Arrival(round(number * APART_S + call.arrives_s, 6), call.function, deadline_s=call.due_s - call.arrives_s)
        for number, instance in enumerate(learned)
        for call in instance.calls
    ]
    lines: list[CallLine] = []
    devices = [DeviceSpec("gpu-1", concurrency=1), DeviceSpec(CPU, CPU, concurrency=1)]
    simulate(Scenario(devices, _functions(), ListedWorkload(arrivals)), settings, on_end=lines.append)
    first_s = (len(learned) - len(instances)) * APART_S
    return sum(bool(line.met) for line in lines if line.arrived_s >= first_s)


def _functions() -> dict[str, FunctionSpec]:
    return {
        name: FunctionSpec(name, times=_times(gpu_s, name), times_by_kind={CPU: _times(cpu_s, name)}, batch=MAX_BATCH)
        for name in GPU_S
    }


def _times(run_s: RunTime, name: str) -> Times:
    return Times(run_s(name, 1), 0, 0, {size: run_s(name, size) for size in range(2, MAX_BATCH + 1)})
