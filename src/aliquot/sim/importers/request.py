"""Import requests, their results, and the selection of calls that all importers share."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import FunctionSpec
from aliquot.sim.arrivals import Arrival
from aliquot.sim.workloads import MICROSECONDS

K = TypeVar("K")


class ImportRequest(Struct, frozen=True):
    """The part of a trace to import, and the profiles to use. Seconds count from the beginning of the trace."""

    data: Path  # folder with one subfolder per trace
    profile: str | None = None  # None: the default of the trace
    flows: int | None = None  # keep only this many flows, the busiest; None: all
    start_s: float = 0
    duration_s: float | None = None  # None: to the end, or the importer's default
    calls: int | None = None  # stop after this many calls
    seed: int = 0
    day: int = 1  # of traces with a file for each day
    cluster: str = "Earth"  # of traces with a folder for each cluster
    models: tuple[str, ...] = ()  # of traces with clients of several models; (): the default of the trace

    @property
    def end_s(self) -> float:
        return float("inf") if self.duration_s is None else self.start_s + self.duration_s


class ImportedTrace(NamedTuple):
    """Functions and a stream of their calls, in order of time, the first at 0."""

    functions: dict[str, FunctionSpec]
    arrivals: Iterator[Arrival]


def refuse_profiles(request: ImportRequest, kind: str) -> None:
    """Refuse `--profile` for a trace that records run times, because profiles would contradict them."""
    if request.profile not in {None, "own"}:
        raise InputError(f"--profile: {kind} has run times of its own, not '{request.profile}'; it takes own")


def in_window(arrivals: Iterable[Arrival], request: ImportRequest) -> Iterator[Arrival]:
    """Select the requested window from ordered arrivals, limit their number, and shift the first one to 0."""
    return islice(_shifted(arrivals, request), request.calls)


def _shifted(arrivals: Iterable[Arrival], request: ImportRequest) -> Iterator[Arrival]:
    first_s: float | None = None
    for arrival in arrivals:
        if arrival.time_s < request.start_s:
            continue
        if arrival.time_s >= request.end_s:
            return
        if first_s is None:
            first_s = arrival.time_s
        yield arrival._replace(time_s=round(arrival.time_s - first_s, MICROSECONDS))


def busiest(calls: Mapping[K, float], flows: int | None) -> list[K]:
    """Return the keys with the most calls, in their original order. Ties go to the earlier key, 0 calls are dropped."""
    called = {key: count for key, count in calls.items() if count > 0}
    kept = dict.fromkeys(sorted(called, key=lambda key: -called[key])[:flows])
    return [key for key in called if key in kept]


def import_listed(
    calls: Iterable[Arrival], make_function: Callable[[str, float], FunctionSpec], request: ImportRequest
) -> ImportedTrace:
    """Import a trace that lists every call with its run time. The calls are held in memory.

    `make_function` makes a function from its name and the mean run time of its calls in the window.
    """
    ordered = sorted(calls, key=lambda call: call.time_s)
    window = [call for call in ordered if request.start_s <= call.time_s < request.end_s]
    runs: dict[str, list[float]] = {}
    for call in window:
        runs.setdefault(call.function, []).append(call.run_s or 0)
    kept = busiest({name: len(times) for name, times in runs.items()}, request.flows)
    functions = {name: make_function(name, round(sum(runs[name]) / len(runs[name]), MICROSECONDS)) for name in kept}
    return ImportedTrace(functions, in_window((call for call in window if call.function in functions), request))


def since_first(calls: Iterable[Arrival]) -> list[Arrival]:
    """Shift calls so that the earliest one is at 0."""
    listed = list(calls)
    first_s = min((call.time_s for call in listed), default=0)
    return [call._replace(time_s=round(call.time_s - first_s, MICROSECONDS)) for call in listed]
