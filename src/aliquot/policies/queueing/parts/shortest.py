"""The base of policies that prefer short work: flows in a heap, by a key computed from the run estimate."""

from abc import abstractmethod

from aliquot.core.interfaces import Params, Queueing, RandomSource
from aliquot.core.view import DeviceView, FlowView, InvocationView, View
from aliquot.policies.queueing.parts.flow_heap import FlowHeap


class ShortestParams(Params, frozen=True):
    unknown_s: float = 1  # estimate for a function without a declared or measured run time


class Shortest(Queueing):
    """Keeps `self.flows` sorted by `key`, which depends on the head of a flow, and may change after a run."""

    params_type = ShortestParams

    def __init__(self, params: ShortestParams, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self.flows: FlowHeap[tuple[float, float]] = FlowHeap()
        self._unknown_s = params.unknown_s

    @abstractmethod
    def key(self, flow: FlowView, run_s: float) -> tuple[float, float]:
        """Return the key of the flow. The smallest key is served first."""

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        if flow.queued == 1 or flow.head.number == invocation.number:  # a new head may have returned to the queue
            self._place(flow)

    def dispatched(self, flow: FlowView, invocation: InvocationView, device: DeviceView, view: View) -> None:
        self._place(flow)

    def withdrawn(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self._place(flow)

    def redeployed(self, flow: FlowView, view: View) -> None:
        self._place(flow)

    def finished(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self._place(flow)

    def _place(self, flow: FlowView) -> None:
        if flow.queued:
            known = flow.run_estimate_s
            self.flows.set(flow, self.key(flow, self._unknown_s if known is None else known))
        else:
            self.flows.discard(flow)
