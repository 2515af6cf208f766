"""The offered load of a trace, and rescaling of its time axis to another load."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.core.model import FlowKey, FunctionSpec
from aliquot.sim.arrivals import Arrival
from aliquot.sim.workloads import MICROSECONDS


class TraceMeasurement(Struct, frozen=True):
    """Facts about a trace from one pass over its arrivals."""

    calls: int
    flows: list[FlowKey]  # in order of first appearance
    work_s: float  # sum of all run times, on the device that the times refer to
    span_s: float  # from the first arrival to the last

    @property
    def tenants(self) -> list[str]:
        return list(dict.fromkeys(flow.tenant for flow in self.flows))

    def load(self, devices: int) -> float:
        """Return the offered load: work divided by span and devices, or infinity if the span is 0."""
        return self.work_s / self.span_s / devices if self.span_s else float("inf")


def measure(arrivals: Iterable[Arrival], functions: Mapping[str, FunctionSpec]) -> TraceMeasurement:
    """Measure a trace. A call without a run time of its own counts with its function's declared one."""
    declared = {name: function.times.run_s or 0 for name, function in functions.items()}
    flows: dict[FlowKey, None] = {}
    calls = 0
    work_s = first_s = last_s = 0.0
    for arrival in arrivals:
        if not calls:
            first_s = arrival.time_s
        calls += 1
        last_s = arrival.time_s
        work_s += declared[arrival.function] if arrival.run_s is None else arrival.run_s
        flows.setdefault(FlowKey(arrival.tenant, arrival.function))
    return TraceMeasurement(calls, list(flows), work_s, last_s - first_s)


def time_scale(measured: TraceMeasurement, load: float, devices: int) -> float:
    """Return the factor for all times that changes the offered load to `load`."""
    natural = measured.load(devices)
    if not 0 < natural < float("inf"):
        why = "run for no time" if measured.span_s else "come at one moment"
        raise InputError(f"--load: all calls {why}, so no time scale gives a load of {load}; it takes others")
    return natural / load


def rescale(arrivals: Iterable[Arrival], scale: float) -> Iterator[Arrival]:
    """Multiply the time of each call by `scale`."""
    for arrival in arrivals:
        yield arrival._replace(time_s=round(arrival.time_s * scale, MICROSECONDS))
