"""The figures of a window: what was measured, and what a simulation gives, about the same calls."""

from array import array
from collections import defaultdict
from math import fsum
from typing import NamedTuple

from msgspec import Struct

from aliquot.core.clock import between
from aliquot.core.commands import Start
from aliquot.live.history.records import CallEnd
from aliquot.sim.recorder import CallLine, DispatchLine
from aliquot.sim.statistics import Summary, summarise
from aliquot.whatif.reading import RecordedWindow
from aliquot.whatif.scenario import used_calls


class EndedCall(NamedTuple):
    """When a call of the window ended, and how long it took, in seconds of the window."""

    ended_s: float
    latency_s: float


class WindowFigures(Struct, frozen=True):
    """The figures of one row."""

    name: str
    calls: int
    latency_s: Summary
    wait_s: Summary
    cold_starts: int
    refused: int
    tenants: dict[str, float]  # mean latency by tenant


class FiguresCollector:
    """Collects the calls of one row. Calls that arrived before `from_s` only warm up."""

    def __init__(self, name: str, from_s: float) -> None:
        self.name = name
        self._from_s = from_s
        self.ended: list[EndedCall] = []
        self._waits = array("d")
        self._tenants: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._cold = self._refused = 0

    def dispatched(self, line: DispatchLine) -> None:
        if line.arrived_s >= self._from_s:
            self.add_dispatch(between(line.arrived_s, line.time_s), cold=line.start == Start.COLD)

    def completed(self, line: CallLine) -> None:
        if line.arrived_s >= self._from_s:
            self.add_end(line.tenant, line.arrived_s, line.ended_s, refused=line.end != "completed")

    def add_dispatch(self, wait_s: float, *, cold: bool) -> None:
        self._waits.append(wait_s)
        self._cold += cold

    def add_end(self, tenant: str, arrived_s: float, ended_s: float, *, refused: bool) -> None:
        if refused:
            self._refused += 1
            return
        latency_s = between(arrived_s, ended_s)
        self.ended.append(EndedCall(ended_s - self._from_s, latency_s))
        self._tenants[tenant].append(latency_s)

    def figures(self) -> WindowFigures:
        latencies = [call.latency_s for call in self.ended]
        return WindowFigures(
            self.name,
            len(latencies),
            summarise(latencies),
            summarise(self._waits),
            self._cold,
            self._refused,
            {tenant: fsum(values) / len(values) for tenant, values in sorted(self._tenants.items())},
        )


def measured(window: RecordedWindow) -> FiguresCollector:
    """Collect what was measured about the calls that are simulated."""
    calls = used_calls(window.recording)
    origin = calls[0].arrived if calls else window.from_s
    collected = FiguresCollector("measured", window.from_s - origin)
    for call in calls:
        if call.arrived < window.from_s or call.ended is None:
            continue
        if call.dispatched is not None:
            collected.add_dispatch(call.dispatched - call.arrived, cold=call.start is Start.COLD)
        refused = call.end is CallEnd.REFUSED
        collected.add_end(call.flow.tenant, call.arrived - origin, call.ended - origin, refused=refused)
    return collected
