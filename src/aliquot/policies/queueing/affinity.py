"""Completely fair scheduling with residency, as in the Kernel-as-a-Service pool.

A free device takes the flow with the smallest `vTime + (0 if it is resident here else 10 tau)`. The flow's vTime then
grows by tau, its run estimate. A flow that becomes non-empty restarts at the smallest vTime, as in the original, which
favours flows that are often empty for an instant. Two kinds of heap give the minimum without a scan: all flows by the
key with the penalty, and for each device the resident flows by their vTime. Among many devices, where a flow may be
resident on thousands, the second kind is replaced by a look at the few flows with the smallest vTime.
"""

from aliquot.core.device_index import MAX_COMPARED
from aliquot.core.interfaces import Choice, Params, Queueing, RandomSource
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.flow_heap import FlowHeap
from aliquot.policies.queueing.parts.placement import by_last_dispatch, on_device


class AffinityParams(Params, frozen=True):
    penalty: float = 10  # added for a flow that is not resident, in run estimates
    unknown_s: float = 1


class Affinity(Queueing):
    params_type = AffinityParams

    def __init__(self, params: AffinityParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self._penalty = params.penalty
        self._unknown_s = params.unknown_s
        self._vtime: dict[int, float] = {}
        self._smallest = 0.0  # vTime of the non-empty flows, or the last one when all are empty
        self._by_vtime: FlowHeap[float] = FlowHeap()
        self._penalised: FlowHeap[float] = FlowHeap()
        self._resident: dict[int, FlowHeap[float]] = {}  # by device, unless there are many
        self._many = False

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        if flow.queued == 1:
            self._vtime[flow.index] = self._smallest
            self._place(flow, view)

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        self._vtime[flow.index] += self._tau(flow) / invocation.batch_size
        self._place(flow, view)

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self._place(flow, view)

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self._place(flow, view)

    def redeployed(self, flow: FlowView, view: View) -> None:
        self._place(flow, view)

    def devices_changed(self, view: View) -> None:
        self._many = view.many
        self._resident = {} if self._many else {device.index: FlowHeap() for device in view.devices}
        for flow in self._by_vtime.items():
            self._place(flow, view)

    def residency_changed(self, flow: FlowView, device: DeviceView) -> None:
        if not self._many:
            self._place_on(flow, device)

    def closed(self, flow: FlowView, view: View) -> None:
        self._vtime.pop(flow.index, None)

    def choose(self, view: View) -> Choice | None:
        for device in by_last_dispatch(view):
            for flow, reason in self._ranked(device):
                place = on_device(view, flow, device)
                if place is not None:
                    return Choice(flow, *place, reason)
                if view.could_hold(flow, device):
                    break  # it will fit later, and letting others pass would starve it
        return None

    def _ranked(self, device: DeviceView) -> list[tuple[FlowView, str]]:
        """Return the best resident flow and the best of all flows, the better one first."""
        ranked = []
        if (flow := self._first_resident(device)) is not None:
            ranked.append((self._vtime[flow.index], 0, flow, "smallest vTime, resident"))
        if (flow := self._penalised.first()) is not None:
            ranked.append((self._penalised.first_key() or 0.0, 1, flow, "smallest vTime"))
        return [(flow, reason) for _, _, flow, reason in sorted(ranked, key=lambda entry: entry[:2])]

    def _first_resident(self, device: DeviceView) -> FlowView | None:
        """Return the flow with the smallest vTime of those that are resident on the device."""
        if self._many:
            return next((flow for flow in self._by_vtime.smallest(MAX_COMPARED) if flow.resident_on(device)), None)
        resident = self._resident.get(device.index)
        return None if resident is None else resident.first()

    def _place(self, flow: FlowView, view: View) -> None:
        if flow.queued:
            self._by_vtime.set(flow, self._vtime[flow.index])
            self._penalised.set(flow, self._vtime[flow.index] + self._penalty * self._tau(flow))
        else:
            self._by_vtime.discard(flow)
            self._penalised.discard(flow)
        for device in () if self._many else view.devices:
            self._place_on(flow, device)
        smallest = self._by_vtime.first_key()
        self._smallest = self._smallest if smallest is None else smallest

    def _place_on(self, flow: FlowView, device: DeviceView) -> None:
        resident = self._resident.setdefault(device.index, FlowHeap())
        if flow.queued and flow.resident_on(device):
            resident.set(flow, self._vtime[flow.index])
        else:
            resident.discard(flow)

    def _tau(self, flow: FlowView) -> float:
        known = flow.run_estimate_s
        return self._unknown_s if known is None else known
