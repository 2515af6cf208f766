"""The workloads of the benchmark: two samples of Azure Functions by the minute.

A function has one call in each minute in which it was called, at a second of the minute that is drawn once. So a
function is kept or not by the minute, as in the paper on the hybrid histogram, and needs one sandbox. Run times are the
recorded averages, but at most ten seconds, which keeps calls of two minutes apart. Memory is as recorded, and a cold
start takes half a second and the transfer of this memory from the store.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from aliquot.core.model import FunctionSpec
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.importers.azure_functions import (
    FOLDER,
    MINUTE_S,
    OWNERS_500,
    MinuteCounts,
    read_minute_counts,
)
from aliquot.sim.importers.azure_functions_1000 import day_1000
from aliquot.sim.importers.azure_own import read_own
from aliquot.sim.importers.files import Files, needed_files
from aliquot.sim.importers.request import ImportRequest

MAX_RUN_S = 10
SAMPLES = {"500 functions, 8 h": "azure_functions", "1000 functions, 24 h": "azure_functions_1000"}  # names of traces


class MinuteWorkload(Struct):
    """A sample as a workload. Policies learn in its first half and are measured in the second."""

    name: str
    functions: dict[str, FunctionSpec]
    workload: ListedWorkload
    minutes: int
    first_calls: int  # first calls of a function in the second half, which no policy can expect

    @property
    def half_s(self) -> float:
        """Return where the second half begins."""
        return self.minutes // 2 * MINUTE_S


def sample_files(name: str) -> list[Files]:
    """Return the files that a sample is read from."""
    return needed_files(SAMPLES[name], ImportRequest(Path(), profile="own"))


def read_sample(name: str, data: Path, functions: int | None = None) -> MinuteWorkload:
    """Read a sample, or its first functions."""
    sample = day_1000(data) if SAMPLES[name] == "azure_functions_1000" else OWNERS_500
    counted = read_minute_counts(data, sample)[:functions]
    called = [counts for counts in counted if any(counts.calls)]
    names = {counts.function: f"f{number}" for number, counts in enumerate(called)}
    own = read_own(data / FOLDER, sample.own, names)
    specs = {name: _shortened(own[name].function) for name in names.values()}
    minutes = len(called[0].calls)
    first = [next(minute for minute, calls in enumerate(counts.calls) if calls) for counts in called]
    return MinuteWorkload(
        name, specs, ListedWorkload(_arrivals(called, names)), minutes, sum(each >= minutes // 2 for each in first)
    )


def _shortened(function: FunctionSpec) -> FunctionSpec:
    times = function.times
    return replace(function, times=replace(times, run_s=min(times.run_s or 0, MAX_RUN_S)))


def _arrivals(called: Sequence[MinuteCounts], names: dict[str, str]) -> list[Arrival]:
    found = []
    for counts in called:
        name = names[counts.function]
        second = Random(name).uniform(0, MINUTE_S)
        found += [
            Arrival(minute * MINUTE_S + second, name, counts.owner)
            for minute, calls in enumerate(counts.calls)
            if calls
        ]
    return found
