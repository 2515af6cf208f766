"""First come, first served over several flows, in O(1), and what the policies that go by it have in common."""

from collections import deque
from collections.abc import Iterator

from aliquot.core.interfaces import Params, Queueing, RandomSource
from aliquot.core.view import FlowView, InvocationView, View


class ArrivalOrder:
    """Flows by the arrival of their heads. All queued invocations of a flow are in the same order.

    Dispatched and withdrawn invocations are not looked for; their entries are dropped when they come to the front.
    """

    def __init__(self) -> None:
        self._entries: deque[tuple[int, FlowView]] = deque()

    def push(self, flow: FlowView, number: int) -> None:
        self._entries.append((number, flow))

    def first(self) -> FlowView | None:
        """The flow whose head has waited longest."""
        entries = self._entries
        while entries:
            number, flow = entries[0]
            if flow.queued and flow.head.number == number:
                return flow
            entries.popleft()
        return None

    def __iter__(self) -> Iterator[tuple[int, FlowView]]:
        """Number and flow of every entry, in order, those to be dropped included."""
        return iter(self._entries)


class InArrivalOrder(Queueing):
    """A policy that keeps `self.order` over all flows of its domain."""

    def __init__(self, params: Params, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self.order = ArrivalOrder()

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self.order.push(flow, invocation.number)
