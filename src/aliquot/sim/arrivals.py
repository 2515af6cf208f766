"""Arrivals and workloads: the calls of a simulation, from a file, a generator or a list."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from aliquot.core.admission.records import Late
from aliquot.core.clock import after
from aliquot.core.model import DEFAULT_TENANT, FlowKey


class Arrival(NamedTuple):
    """One call. `run_s` is its actual run time on the device of the function's times. Policies do not see it."""

    time_s: float
    function: str
    tenant: str = DEFAULT_TENANT
    run_s: float | None = None
    deadline_s: float | None = None
    cost_limit: float | None = None
    session: str | None = None  # name of the tenant's session
    reads: tuple[str, ...] = ()  # files that the call opens one after the other, as `dataset/path`
    late: Late = Late.RUN  # what follows if its promise is broken
    key: str | None = None  # calls with the same key have the same result


class WorkloadOverview(NamedTuple):
    """Facts about a workload from one pass over it."""

    calls: int
    flows: list[FlowKey]  # in order of first appearance
    last_s: float = 0  # time of the last arrival


class Workload(Protocol):
    """A stream of arrivals that can be iterated several times with the same result."""

    def __iter__(self) -> Iterator[Arrival]: ...
    def overview(self) -> WorkloadOverview: ...


class ListedWorkload:
    """A workload held in memory."""

    def __init__(self, arrivals: Iterable[Arrival]) -> None:
        on_grid = (arrival._replace(time_s=after(0, arrival.time_s)) for arrival in arrivals)
        self.arrivals = sorted(on_grid, key=lambda arrival: arrival.time_s)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    def overview(self) -> WorkloadOverview:
        return make_overview(self)


def make_overview(arrivals: Iterable[Arrival]) -> WorkloadOverview:
    """Iterate over arrivals once to count calls and flows."""
    flows: dict[FlowKey, None] = {}
    count = 0
    last_s: float = 0
    for arrival in arrivals:
        count += 1
        last_s = arrival.time_s
        flows.setdefault(FlowKey(arrival.tenant, arrival.function))
    return WorkloadOverview(count, list(flows), last_s)
