"""The part of a trace that is asked for: a window of time, a number of calls, the busiest flows."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from aliquot.sim.arrivals import Arrival
from aliquot.sim.importers.request import ImportRequest
from aliquot.sim.workloads import MICROSECONDS

K = TypeVar("K")


def in_window(arrivals: Iterable[Arrival], request: ImportRequest) -> Iterator[Arrival]:
    """Of arrivals in order of time, those from start to before the end, at most as many as asked for; first at 0."""
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
    """Those with most calls, of equals the earlier, in the order they came; those never called are left out."""
    called = {key: count for key, count in calls.items() if count > 0}
    kept = dict.fromkeys(sorted(called, key=lambda key: -called[key])[:flows])
    return [key for key in called if key in kept]
