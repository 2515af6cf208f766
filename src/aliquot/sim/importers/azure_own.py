"""The Azure functions' own profiles: what they took on CPUs, as percentiles, and the memory they had.

A call's run time is drawn from the function's percentiles, in straight lines between them, and is at least 1 ms.
Assumed: their median memory is device memory, a start takes 0.5 s and the time that these bytes take from the store.
"""

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from random import Random

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import MIB
from aliquot.sim.csv_input import CsvRow, read_rows
from aliquot.sim.importers.sizes import STORE_BYTES_PER_S, load_s
from aliquot.sim.workloads import MICROSECONDS

PERCENTS = (0, 1, 25, 50, 75, 99, 100)
MIN_RUN_S = 0.001
START_S = 0.5
MEMORY = "AverageAllocatedMb_pct50"


class AzureProfile(Struct, frozen=True):
    """A function, and how its run times are spread."""

    function: FunctionSpec
    percentiles_ms: list[float]

    def draw_run_s(self, random: Random) -> float:
        percent = 100 * random.random()
        place = bisect_right(PERCENTS, percent) - 1  # below the last: random() is below 1
        low, high = self.percentiles_ms[place : place + 2]
        part = (percent - PERCENTS[place]) / (PERCENTS[place + 1] - PERCENTS[place])
        return _seconds(low + part * (high - low))


def read_own(folder: Path, names: Mapping[str, str]) -> dict[str, AzureProfile]:
    """Profiles by name, for functions whose names are given by hash."""
    durations = folder / "dirigent500_durations.csv.gz"
    memory = folder / "dirigent500_memory.csv.gz"
    bytes_by_hash = {row.text("HashFunction"): _bytes(row) for row in read_rows(memory, ("HashFunction", MEMORY), None)}
    columns = [f"percentile_Average_{percent}" for percent in PERCENTS]
    profiles = {}
    for row in read_rows(durations, ("HashFunction", "Average", *columns), None):
        key = row.text("HashFunction")
        if key not in names:
            continue
        if key not in bytes_by_hash:
            raise InputError(f"{memory}: function {key} is missing; it takes each of {durations}")
        percentiles = [row.number(column, "ms, 0 or more") for column in columns]
        if percentiles != sorted(percentiles):
            raise row.error(f"the percentiles are {percentiles}; it takes ascending ones")
        run_s = _seconds(row.number("Average", "ms, 0 or more"))
        profiles[names[key]] = AzureProfile(_function(names[key], run_s, bytes_by_hash[key]), percentiles)
    for key, name in names.items():
        if name not in profiles:
            raise InputError(f"{durations}: function {key} is missing; it takes each that is called")
    return profiles


def _bytes(row: CsvRow) -> int:
    return round(row.number(MEMORY, "MB, 0 or more") * MIB)


def _seconds(ms: float) -> float:
    return max(MIN_RUN_S, round(ms / 1000, MICROSECONDS))


def _function(name: str, run_s: float, memory_bytes: int) -> FunctionSpec:
    cold_s = round(START_S + memory_bytes / STORE_BYTES_PER_S, MICROSECONDS)
    return FunctionSpec(name, memory_bytes, times=Times(run_s, cold_s, load_s(memory_bytes)))
