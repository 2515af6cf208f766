"""Importer of the Azure Functions trace of 2019: eight hours of 500 functions with their owners.

Owners become tenants `o-…` and functions become `f-…`, named by the first digits of their hashes. The trace counts
calls per minute, and they are spread uniformly at random within the minute. Run times were recorded on CPUs only
(profile `own`). The profiles `mqfq` and `timm` assign each function a GPU profile at random instead. Time 0 is the
first minute of the trace.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, inf
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec
from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.azure_own import OwnFiles, read_own
from aliquot.sim.importers.profiles import PROFILES
from aliquot.sim.importers.request import ImportedTrace, ImportRequest, busiest, in_window
from aliquot.sim.input_files import CsvRow, read_rows
from aliquot.sim.workloads import MICROSECONDS

HASHES = ("HashOwner", "HashApp", "HashFunction")
FOLDER = "azure_functions_2019"
MINUTE_S = 60
HASH_DIGITS = 6  # digits of a hash in a name, or more if two names would be equal


class MinuteCounts(Struct, frozen=True):
    """The calls of a function, counted per minute."""

    owner: str
    function: str
    calls: list[int]


class AzureSample(Struct, frozen=True):
    """The files of a sample, and how their columns are named."""

    invocations: str
    own: OwnFiles
    columns: tuple[str, ...] = HASHES  # before the minutes
    minute: str = ""  # what the name of a minute's column begins with


OWNERS_500 = AzureSample(
    "dirigent500_invocations.csv.gz",
    OwnFiles("dirigent500_durations.csv.gz", "dirigent500_memory.csv.gz"),
    (*HASHES, "Trigger"),
)

RunTimes = dict[str, Callable[[Random], float]]  # by function; other functions run for their declared time


def read_azure_functions(request: ImportRequest) -> ImportedTrace:
    return read_azure_sample(request, OWNERS_500)


def read_azure_sample(request: ImportRequest, sample: AzureSample) -> ImportedTrace:
    """Import the requested part of a sample."""
    minutes = _minutes(request)
    counted = read_minute_counts(request.data, sample)
    owners = _names("o", [counts.owner for counts in counted])
    names = _names("f", [counts.function for counts in counted])
    called = {counts.function: sum(counts.calls[minutes]) for counts in counted}
    kept = dict.fromkeys(busiest(called, request.flows))
    functions, run_times = _functions(sample, {key: names[key] for key in kept}, request)
    flows = [
        MinuteCounts(owners[counts.owner], names[counts.function], counts.calls)
        for counts in counted
        if counts.function in kept and names[counts.function] in functions
    ]
    return ImportedTrace(functions, in_window(_arrivals(flows, run_times, minutes, request.seed), request))


def _minutes(request: ImportRequest) -> slice:
    """Return the minutes that overlap the requested window."""
    return slice(int(request.start_s // MINUTE_S), None if request.end_s == inf else ceil(request.end_s / MINUTE_S))


def read_minute_counts(data: Path, sample: AzureSample) -> list[MinuteCounts]:
    """Read how often each function was called in each minute."""
    path = data / FOLDER / sample.invocations
    counted: dict[str, MinuteCounts] = {}
    for row in read_rows(path, sample.columns, None):
        minutes = [name for name in row.values if name not in sample.columns]
        if not counted:
            _check_minutes(path, minutes, sample)
        key = sample.own.key(row)
        if key in counted:
            raise row.error(f"function {key} is listed twice")
        counted[key] = MinuteCounts(row.text("HashOwner"), key, [_calls(row, minute) for minute in minutes])
    if not counted:
        raise InputError(f"{path}:2: there are no functions; it takes one a line")
    return list(counted.values())


def _check_minutes(path: Path, minutes: Sequence[str], sample: AzureSample) -> None:
    named = minutes[0].removeprefix(sample.minute) if minutes else ""
    first = int(named) if named.isdecimal() else 0
    if list(minutes) != [f"{sample.minute}{first + index}" for index in range(len(minutes))] or not minutes:
        last = sample.columns[-1]
        raise InputError(f"{path}:1: the columns after {last} are not minutes; it takes consecutive numbers")


def _calls(row: CsvRow, minute: str) -> int:
    if row.values[minute] == "0":  # as nearly all are
        return 0
    takes = "a whole number of calls"
    calls = row.number(minute, takes)
    if calls != int(calls):
        raise row.error(f"{minute} is '{row.values[minute]}'; it takes {takes}")
    return int(calls)


def _names(letter: str, hashes: Sequence[str]) -> dict[str, str]:
    """Return a short unique name for each hash."""
    keys = list(dict.fromkeys(hashes))
    digits = HASH_DIGITS
    while len({key[:digits] for key in keys}) < len(keys):
        digits += 1
    return {key: f"{letter}-{key[:digits]}" for key in keys}


def _functions(
    sample: AzureSample, names: dict[str, str], request: ImportRequest
) -> tuple[dict[str, FunctionSpec], RunTimes]:
    kind = request.profile or "mqfq"
    if kind == "own":
        own = read_own(request.data / FOLDER, sample.own, names)
        return {name: profile.function for name, profile in own.items()}, {
            name: profile.draw_run_s for name, profile in own.items()
        }
    if kind not in PROFILES:
        raise InputError(f"--profile: there is no '{kind}'; it takes {', '.join([*PROFILES, 'own'])}")
    profiles = PROFILES[kind](request.data)
    drawn = {name: Random(f"{request.seed}/{name}/profile").choice(profiles) for name in names.values()}
    return {name: replace(profile, name=name) for name, profile in drawn.items()}, {}


def _arrivals(flows: Sequence[MinuteCounts], run_times: RunTimes, minutes: slice, seed: int) -> Iterator[Arrival]:
    """Generate arrivals minute by minute, so that only one minute is held in memory.

    Each function has its own generators, so its arrivals do not depend on the other imported functions.
    """
    spreads = [Random(f"{seed}/{flow.function}/times") for flow in flows]
    runs = [Random(f"{seed}/{flow.function}/runs") for flow in flows]
    last = len(flows[0].calls) if flows else 0
    for minute in range(last)[minutes]:
        arrivals = []
        for flow, spread, run in zip(flows, spreads, runs, strict=True):
            draw = run_times.get(flow.function)
            for _ in range(flow.calls[minute]):
                time_s = round(MINUTE_S * (minute + spread.random()), MICROSECONDS)
                arrivals.append(Arrival(time_s, flow.function, flow.owner, draw(run) if draw else None))
        arrivals.sort(key=lambda arrival: arrival.time_s)
        yield from arrivals
