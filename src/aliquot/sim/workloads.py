"""Workload makers: arrivals at a given load, with a given unrest and popularity, the same for the same seed."""

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

MICROSECONDS = 6


class WorkloadSpec(Struct, frozen=True):
    """What kind of workload to make. The offered load is the sum of rate times run time, divided by the devices."""

    load: float = 0.8
    devices: int = 2
    duration_s: float = 600
    process: str = "poisson"  # or gamma, or bursty
    cv: float = 3  # gamma: standard deviation of the gaps over their mean
    on_s: float = 10  # bursty: mean length of a burst
    off_s: float = 30  # bursty: mean silence between two
    zipf: float = 0  # popularity falls as 1/rank^zipf; 0: all alike
    even_work: bool = False  # popularity counts work, not calls: a function that runs longer is called less often
    tenants: int = 1  # functions are dealt to them in turn
    run_cv: float = 0  # of each call's own run time
    step_s: float = 0  # arrivals only at multiples of it; 0: anywhere
    seed: int = 0


Gaps = Callable[[Random, float], Iterator[float]]


def poisson(recipe: WorkloadSpec) -> Gaps:
    """Memoryless."""

    def gaps(random: Random, rate: float) -> Iterator[float]:
        while True:
            yield random.expovariate(rate)

    del recipe
    return gaps


def gamma(recipe: WorkloadSpec) -> Gaps:
    """Gaps with any spread: calmer than Poisson below a coefficient of variation of 1, burstier above."""
    shape = 1 / recipe.cv**2

    def gaps(random: Random, rate: float) -> Iterator[float]:
        scale = 1 / (rate * shape)
        # The first at a random moment of a gap, which is likely a long one: else every flow would begin with a burst.
        yield random.random() * random.gammavariate(shape + 1, scale)
        while True:
            yield random.gammavariate(shape, scale)

    return gaps


def bursty(recipe: WorkloadSpec) -> Gaps:
    """Poisson in bursts, silence between them; the mean rate is kept."""
    cycle_s = recipe.on_s + recipe.off_s

    def gaps(random: Random, rate: float) -> Iterator[float]:
        burst_rate = rate * cycle_s / recipe.on_s
        silent = random.random() < recipe.off_s / cycle_s  # so that flows do not start in step
        gap = random.expovariate(1 / recipe.off_s) if silent else 0.0
        left = random.expovariate(1 / recipe.on_s)
        while True:
            step = random.expovariate(burst_rate)
            while step > left:
                step -= left
                gap += left + random.expovariate(1 / recipe.off_s)
                left = random.expovariate(1 / recipe.on_s)
            left -= step
            yield gap + step
            gap = 0.0

    return gaps


PROCESSES: dict[str, Callable[[WorkloadSpec], Gaps]] = {"bursty": bursty, "gamma": gamma, "poisson": poisson}


def make_arrivals(functions: Mapping[str, FunctionSpec], recipe: WorkloadSpec) -> Iterator[Arrival]:
    """Arrivals in order of time, made as they are asked for."""
    gaps = PROCESSES[recipe.process](recipe)
    streams = []
    for place, (function, rate) in enumerate(zip(functions.values(), _rates(functions, recipe), strict=True)):
        tenant = DEFAULT_TENANT if recipe.tenants == 1 else f"tenant{place % recipe.tenants + 1}"
        streams.append(_stream(function, tenant, gaps, rate, recipe))
    return merge(*streams, key=itemgetter(0))  # time_s; asked too often for a lambda


def _rates(functions: Mapping[str, FunctionSpec], recipe: WorkloadSpec) -> list[float]:
    """Calls per second of each function, so that popularity and load are as asked for."""
    runs = [function.times.run_s or 0 for function in functions.values()]
    if not any(runs) or (recipe.even_work and not all(runs)):
        raise InputError("run_s: a function runs for 0 seconds, so no rate of arrivals gives it a load")
    parts = [1 / (rank + 1) ** recipe.zipf for rank in range(len(runs))]
    if recipe.even_work:
        parts = [part / run_s for part, run_s in zip(parts, runs, strict=True)]
    work = sum(part * run_s for part, run_s in zip(parts, runs, strict=True))
    return [part * recipe.load * recipe.devices / work for part in parts]


def _stream(function: FunctionSpec, tenant: str, gaps: Gaps, rate: float, recipe: WorkloadSpec) -> Iterator[Arrival]:
    random = Random(f"{recipe.seed}/{tenant}/{function.name}")
    time_s = 0.0
    for gap in gaps(random, rate):
        time_s += gap
        if time_s >= recipe.duration_s:
            return
        at = round(time_s, MICROSECONDS)
        if recipe.step_s:
            at = round(floor(time_s / recipe.step_s) * recipe.step_s, MICROSECONDS)
        yield Arrival(at, function.name, tenant, draw_run_s(random, function.times.run_s or 0, recipe.run_cv))


def draw_run_s(random: Random, mean_s: float, cv: float) -> float | None:
    """Log-normal around the declared time; None: just that."""
    if not cv or not mean_s:
        return None
    sigma = sqrt(log(1 + cv**2))
    return round(random.lognormvariate(log(mean_s) - sigma**2 / 2, sigma), MICROSECONDS)


def make_functions(count: int, seed: int) -> dict[str, FunctionSpec]:
    """Functions as varied as inference and science are: run times over two decades, sizes over one and a half."""
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
