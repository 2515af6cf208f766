"""Clairvoyant SRTF and MLFQS, as in the printed schedules of the Kernel-as-a-Service thesis.

They read the whole trace in advance, and block until their next call arrives. A live platform cannot run them, so they
are not among the policies. They reproduce the printed schedules, in which a call waits while a device is idle, for
another call that has not arrived yet.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar

from aliquot.core.interfaces import Choice, Params, Queueing, RandomSource
from aliquot.core.model import FlowKey
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing import QUEUEING
from aliquot.policies.queueing.mlfq import duration_class
from aliquot.policies.queueing.parts.placement import least_recent
from aliquot.sim.arrivals import Workload


class ClairvoyantQueueing(Queueing):
    """Sorts all future calls into buckets by run time, and runs the first call of the bucket that `draw` returns."""

    future: ClassVar[Sequence[FlowKey]] = ()  # the flow of each arrival, in order

    def __init__(self, params: Params, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._flows: dict[FlowKey, FlowView] = {}
        self._buckets: dict[float, deque[FlowView]] | None = None
        self._next: FlowView | None = None

    def bucket(self, run_s: float) -> float:
        raise NotImplementedError

    def draw(self, filled: list[float]) -> float:
        """Choose one of the non-empty buckets, which are given in ascending order."""
        raise NotImplementedError

    def opened(self, flow: FlowView, view: View) -> None:
        self._flows[flow.key] = flow

    def choose(self, view: View) -> Choice | None:
        if self._next is None:
            self._next = self._draw_next()
        flow = self._next
        place = least_recent(view, flow) if flow.queued else None
        return Choice(flow, *place, "next of the whole trace") if place else None

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        if self._next is flow:
            self._next = None
            return
        for calls in (self._buckets or {}).values():  # a rider of the batch that the last one leads
            if flow in calls:
                calls.remove(flow)
                return

    def _draw_next(self) -> FlowView:
        if self._buckets is None:
            self._buckets = {}
            for key in self.future:
                if key in self._flows:  # other flows belong to another domain
                    flow = self._flows[key]
                    self._buckets.setdefault(self.bucket(flow.run_estimate_s or 0), deque()).append(flow)
        filled = sorted(number for number, calls in self._buckets.items() if calls)
        return self._buckets[self.draw(filled)].popleft()


class SrtfClairvoyant(ClairvoyantQueueing):
    """Runs all calls of the trace in order of run time."""

    def bucket(self, run_s: float) -> float:
        return run_s

    def draw(self, filled: list[float]) -> float:
        return filled[0]


class MlfqClairvoyant(ClairvoyantQueueing):
    """Draws a random bucket, even if its first call has not arrived yet."""

    def bucket(self, run_s: float) -> float:
        return duration_class(run_s)

    def draw(self, filled: list[float]) -> float:
        return filled[self.generator.randrange(len(filled))]


CLAIRVOYANT: dict[str, type[ClairvoyantQueueing]] = {
    "mlfq_clairvoyant": MlfqClairvoyant,
    "srtf_clairvoyant": SrtfClairvoyant,
}

SIMULATED_QUEUEING: dict[str, type[Queueing]] = {**QUEUEING, **CLAIRVOYANT}  # all policies of the simulator


def queueing_policies(name: str, workload: Workload) -> Mapping[str, type[Queueing]]:
    """Return the simulator's queueing policies. If the named one is clairvoyant, it gets the workload's flows."""
    clairvoyant = CLAIRVOYANT.get(name)
    if clairvoyant is None:
        return SIMULATED_QUEUEING
    future = [FlowKey(arrival.tenant, arrival.function) for arrival in workload]
    return {**SIMULATED_QUEUEING, name: type(clairvoyant.__name__, (clairvoyant,), {"future": future})}
