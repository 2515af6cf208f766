"""Writers for the files of a simulation: arrivals, functions and files as `traces.py` reads them, and schedules.

Files with the suffix `.gz` are compressed.
"""

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from aliquot.config import PolicySettings
from aliquot.core.model import FunctionSpec
from aliquot.core.prefetching.records import FileKey
from aliquot.core.units import MIB
from aliquot.sim.arrivals import Arrival
from aliquot.sim.recorder import CallLine, DispatchLine
from aliquot.sim.statistics import rounded
from aliquot.sim.traces import SEPARATOR

WRITTEN = Arrival._fields[: Arrival._fields.index("reads")]  # columns of an arrivals file without files
CALLS_HEADER = (
    "arrived_s", "function", "tenant", "end", "ended_s", "device", "promised", "met", "blame", "cost", "reason",
    "policy", "admission", "seed",
)  # fmt: skip
SCHEDULE_HEADER = ("time_s", "device", "function", "start", "reason", "tenant", "arrived_s", "policy", "seed")


def write_arrivals(arrivals: Iterable[Arrival], path: Path, *, reads: bool = False) -> int:
    """Write an arrivals file and return the number of arrivals. `reads` adds the column with the files of each call."""
    count = 0
    with _create(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*WRITTEN, "reads") if reads else WRITTEN)
        for arrival in arrivals:
            values = arrival[: len(WRITTEN)]
            writer.writerow((*values, SEPARATOR.join(arrival.reads)) if reads else values)
            count += 1
    return count


def write_files(files: Mapping[FileKey, int], path: Path) -> None:
    """Write a files file, as `simulate --files` reads it."""
    with _create(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("dataset", "path", "mib"))
        writer.writerows((*key, size / MIB) for key, size in files.items())


def write_functions(functions: Iterable[FunctionSpec], path: Path) -> None:
    """Write a functions file, as `simulate --functions` reads it, with optional columns only where they are needed."""
    listed = list(functions)
    shares = any(function.share is not None for function in listed)
    kinds = list(dict.fromkeys(kind for function in listed for kind in function.times_by_kind))
    own = [(time, kind) for kind in kinds for time in ("run_s", "cold_s", "load_s") if _differs(listed, kind, time)]
    datasets = any(function.datasets for function in listed)
    batches = any(function.batch > 1 for function in listed)
    sizes = [(kind, size) for kind in kinds for size in _batch_sizes(listed, kind)]
    header = ["name", "run_s", "cold_s", "memory_mib", "load_s", "weight", *(["share"] if shares else [])]
    header += ["datasets"] if datasets else []
    header += ["batch"] if batches else []
    run_bytes = any(function.run_bytes for function in listed)
    one_per_device = any(function.one_per_device for function in listed)
    header += (["run_mib"] if run_bytes else []) + (["one_per_device"] if one_per_device else [])
    with _create(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        own_columns = [f"{time}@{kind}" for time, kind in own]
        writer.writerow([*header, *own_columns, *(f"run_s@{kind}/{size}" for kind, size in sizes)])
        for function in listed:
            times = function.times
            mib = function.memory_bytes / MIB
            line = [function.name, times.run_s, times.cold_s, mib, times.load_s, function.weight]
            line += [function.share] if shares else []
            line += [SEPARATOR.join(function.datasets)] if datasets else []
            line += [function.batch] if batches else []
            line += [function.run_bytes / MIB] if run_bytes else []
            line += [int(function.one_per_device)] if one_per_device else []
            by_kind = function.times_by_kind
            line += [getattr(by_kind[kind], time) if kind in by_kind else None for time, kind in own]
            line += [by_kind[kind].batch_s.get(size) if kind in by_kind else None for kind, size in sizes]
            writer.writerow(line)


def _batch_sizes(functions: Iterable[FunctionSpec], kind: str) -> list[int]:
    """Return the sizes of batches whose run time on that kind is known for any function."""
    known = (size for f in functions if kind in f.times_by_kind for size in f.times_by_kind[kind].batch_s)
    return sorted(dict.fromkeys(known))


def _differs(functions: Iterable[FunctionSpec], kind: str, time: str) -> bool:
    """Return true if a time on that kind needs its own column, because it differs from the general time."""
    pairs = [(f.times_by_kind[kind], f.times) for f in functions if kind in f.times_by_kind]
    return time == "run_s" or any(getattr(special, time) != getattr(general, time) for special, general in pairs)


@contextmanager
def _create(path: Path) -> Iterator[IO[str]]:
    if path.suffix != ".gz":
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    # Leave out file name and time, so that the same content gives the same bytes.
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,
        TextIOWrapper(zipped, encoding="utf-8", newline="") as file,
    ):
        yield file


class ScheduleWriter:
    """Writes a schedule file, one line per dispatch."""

    def __init__(self, file: IO[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(SCHEDULE_HEADER)

    def write(self, settings: PolicySettings, line: DispatchLine) -> None:
        self._writer.writerow(
            [
                rounded(line.time_s),
                line.device,
                line.function,
                line.start,
                line.reason,
                line.tenant,
                rounded(line.arrived_s),
                settings.queueing,
                settings.seed,
            ]
        )


class CallsWriter:
    """Writes a file with one line for each call that has ended."""

    def __init__(self, file: IO[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(CALLS_HEADER)

    def write(self, settings: PolicySettings, line: CallLine) -> None:
        self._writer.writerow(
            [
                rounded(line.arrived_s),
                line.function,
                line.tenant,
                line.end,
                rounded(line.ended_s),
                line.device,
                int(line.promised),
                "" if line.met is None else int(line.met),
                line.blame,
                rounded(line.cost),
                line.reason,
                settings.queueing,
                settings.admission,
                settings.seed,
            ]
        )
