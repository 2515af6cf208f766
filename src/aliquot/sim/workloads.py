"""Generators of workloads: arrivals with a given load, burstiness and popularity, reproducible by seed."""

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from math import floor, log, sqrt
from operator import itemgetter
from random import Random

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import DEFAULT_TENANT, FunctionSpec, Times
from aliquot.core.units import MIB
from aliquot.sim.arrivals import Arrival

MICROSECONDS = 6  # decimals of generated times


class WorkloadSpec(Struct, frozen=True):
    """Parameters of a workload. The offered load is the sum of rate times run time, divided by the devices."""

    load: float = 0.8
    devices: int = 2
    duration_s: float = 600
    process: str = "poisson"  # or gamma, or bursty
    cv: float = 3  # gamma: standard deviation of the gaps over their mean
    on_s: float = 10  # bursty: mean length of a burst
    off_s: float = 30  # bursty: mean pause between two bursts
    zipf: float = 0  # popularity falls as 1/rank^zipf; 0: all equal
    even_work: bool = False  # popularity refers to work instead of calls, so long functions are called less often
    tenants: int = 1  # functions are assigned to them in turn
    run_cv: float = 0  # coefficient of variation of a call's run time
    step_s: float = 0  # arrivals are at multiples of it; 0: anywhere
    seed: int = 0


Gaps = Callable[[Random, float], Iterator[float]]


def poisson(spec: WorkloadSpec) -> Gaps:
    """Return exponential gaps."""

    def gaps(random: Random, rate: float) -> Iterator[float]:
        while True:
            yield random.expovariate(rate)

    del spec
    return gaps


def gamma(spec: WorkloadSpec) -> Gaps:
    """Return gamma-distributed gaps: more regular than Poisson with a cv below 1, burstier above."""
    shape = 1 / spec.cv**2

    def gaps(random: Random, rate: float) -> Iterator[float]:
        scale = 1 / (rate * shape)
        # Begin at a random point within a gap, probably a long one. Otherwise every flow would begin with a burst.
        yield random.random() * random.gammavariate(shape + 1, scale)
        while True:
            yield random.gammavariate(shape, scale)

    return gaps


def bursty(spec: WorkloadSpec) -> Gaps:
    """Return Poisson gaps in bursts with pauses between them, at the given mean rate."""
    cycle_s = spec.on_s + spec.off_s

    def gaps(random: Random, rate: float) -> Iterator[float]:
        burst_rate = rate * cycle_s / spec.on_s
        silent = random.random() < spec.off_s / cycle_s  # so that flows do not start at the same time
        gap = random.expovariate(1 / spec.off_s) if silent else 0.0
        left = random.expovariate(1 / spec.on_s)
        while True:
            step = random.expovariate(burst_rate)
            while step > left:
                step -= left
                gap += left + random.expovariate(1 / spec.off_s)
                left = random.expovariate(1 / spec.on_s)
            left -= step
            yield gap + step
            gap = 0.0

    return gaps


PROCESSES: dict[str, Callable[[WorkloadSpec], Gaps]] = {"bursty": bursty, "gamma": gamma, "poisson": poisson}


def make_arrivals(functions: Mapping[str, FunctionSpec], spec: WorkloadSpec) -> Iterator[Arrival]:
    """Generate arrivals lazily in order of time."""
    gaps = PROCESSES[spec.process](spec)
    streams = []
    for index, (function, rate) in enumerate(zip(functions.values(), _rates(functions, spec), strict=True)):
        tenant = DEFAULT_TENANT if spec.tenants == 1 else f"tenant{index % spec.tenants + 1}"
        streams.append(_stream(function, tenant, gaps, rate, spec))
    return merge(*streams, key=itemgetter(0))  # time_s; faster than a lambda


def _rates(functions: Mapping[str, FunctionSpec], spec: WorkloadSpec) -> list[float]:
    """Return calls per second of each function for the requested popularity and load."""
    runs = [function.times.run_s or 0 for function in functions.values()]
    if not any(runs) or (spec.even_work and not all(runs)):
        raise InputError("run_s: a function runs for 0 seconds, so no rate of arrivals gives it a load")
    parts = [1 / (rank + 1) ** spec.zipf for rank in range(len(runs))]
    if spec.even_work:
        parts = [part / run_s for part, run_s in zip(parts, runs, strict=True)]
    work = sum(part * run_s for part, run_s in zip(parts, runs, strict=True))
    return [part * spec.load * spec.devices / work for part in parts]


def _stream(function: FunctionSpec, tenant: str, gaps: Gaps, rate: float, spec: WorkloadSpec) -> Iterator[Arrival]:
    random = Random(f"{spec.seed}/{tenant}/{function.name}")
    time_s = 0.0
    for gap in gaps(random, rate):
        time_s += gap
        if time_s >= spec.duration_s:
            return
        at = round(time_s, MICROSECONDS)
        if spec.step_s:
            at = round(floor(time_s / spec.step_s) * spec.step_s, MICROSECONDS)
        yield Arrival(at, function.name, tenant, draw_run_s(random, function.times.run_s or 0, spec.run_cv))


def draw_run_s(random: Random, mean_s: float, cv: float) -> float | None:
    """Draw a log-normal run time around the mean, or return None for the declared time."""
    if not cv or not mean_s:
        return None
    sigma = sqrt(log(1 + cv**2))
    return round(random.lognormvariate(log(mean_s) - sigma**2 / 2, sigma), MICROSECONDS)


def make_functions(count: int, seed: int) -> dict[str, FunctionSpec]:
    """Make functions like those of inference and science, with run times from 0.03 to 4.5 s and 128 MiB to 5 GiB."""
    random = Random(f"{seed}/functions")
    functions = {}
    for number in range(1, count + 1):
        memory_mib = round(128 * 40 ** random.random())
        times = Times(
            run_s=round(0.03 * 150 ** random.random(), 3),
            cold_s=round(1 + 9 * random.random(), 2),
            load_s=round(memory_mib / 12_000, 3),  # at about 12 GiB/s
        )
        name = f"f{number:03}"
        functions[name] = FunctionSpec(name, memory_mib * MIB, times=times)
    return functions
