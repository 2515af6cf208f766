"""The recorded profiles of the Azure functions: percentiles of their run times on CPUs, and their memory.

A call's run time is drawn from the function's percentiles by linear interpolation, and is at least 1 ms. It is assumed
that a function's median memory is its device memory, and that a start takes 0.5 s plus the transfer of these bytes from
the store.
"""

from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from random import Random

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec, Times
from aliquot.core.units import MIB
from aliquot.sim.importers.assumptions import STORE_BYTES_PER_S, load_s
from aliquot.sim.input_files import CsvRow, read_rows
from aliquot.sim.workloads import MICROSECONDS

PERCENTS = (0, 1, 25, 50, 75, 99, 100)
MIN_RUN_S = 0.001
START_S = 0.5
MEMORY = "AverageAllocatedMb_pct50"


class AzureProfile(Struct, frozen=True):
    """A function and the distribution of its run times."""

    function: FunctionSpec
    percentiles_ms: list[float]

    def draw_run_s(self, random: Random) -> float:
        percent = 100 * random.random()
        index = bisect_right(PERCENTS, percent) - 1  # never the last one, because random() is below 1
        low, high = self.percentiles_ms[index : index + 2]
        part = (percent - PERCENTS[index]) / (PERCENTS[index + 1] - PERCENTS[index])
        return _seconds(low + part * (high - low))


class OwnFiles(Struct, frozen=True):
    """The files of one sample."""

    durations: str
    memory: str
    memory_key: str = "HashFunction"  # the column by which the file of memory is read
    by_app: bool = False  # whether a function is named by its app, too
    complete: bool = True  # whether every function that is called must be in them

    def key(self, row: CsvRow) -> str:
        """Return the name of the function in a row of the trace."""
        return row.text("HashFunction") + (row.text("HashApp") if self.by_app else "")


def read_own(folder: Path, files: OwnFiles, names: Mapping[str, str]) -> dict[str, AzureProfile]:
    """Read the profiles of the functions in `names`, which maps hashes to names. The result is keyed by name."""
    durations, memory, key_column = folder / files.durations, folder / files.memory, files.memory_key
    bytes_by_hash = {row.text(key_column): _bytes(row) for row in read_rows(memory, (key_column, MEMORY), None)}
    columns = [f"percentile_Average_{percent}" for percent in PERCENTS]
    profiles = {}
    for row in read_rows(durations, ("HashFunction", "HashApp", "Average", *columns), None):
        key, memory_name = files.key(row), row.text(key_column)
        if key not in names:
            continue
        if memory_name not in bytes_by_hash:
            if not files.complete:
                continue
            raise InputError(f"{memory}: function {key} is missing; it takes every function of {durations}")
        percentiles = [row.number(column, "ms, 0 or more") for column in columns]
        if percentiles != sorted(percentiles):
            raise row.error(f"the percentiles are {percentiles}; it takes ascending ones")
        run_s = _seconds(row.number("Average", "ms, 0 or more"))
        profiles[names[key]] = AzureProfile(_function(names[key], run_s, bytes_by_hash[memory_name]), percentiles)
    for key, name in names.items() if files.complete else ():
        if name not in profiles:
            raise InputError(f"{durations}: function {key} is missing; it takes every function that is called")
    return profiles


def _bytes(row: CsvRow) -> int:
    return round(row.number(MEMORY, "MB, 0 or more") * MIB)


def _seconds(ms: float) -> float:
    return max(MIN_RUN_S, round(ms / 1000, MICROSECONDS))


def _function(name: str, run_s: float, memory_bytes: int) -> FunctionSpec:
    cold_s = round(START_S + memory_bytes / STORE_BYTES_PER_S, MICROSECONDS)
    return FunctionSpec(name, memory_bytes, times=Times(run_s, cold_s, load_s(memory_bytes)))
