"""First come, first served over several flows, in O(1), and the base of policies that use this order."""

from bisect import insort
from collections import deque
from collections.abc import Iterator

from aliquot.core.interfaces import Params, Queueing, RandomSource
from aliquot.core.view import FlowView, InvocationView, View


class ArrivalOrder:
    """Flows in order of the arrival of their heads.

    Entries of dispatched and withdrawn invocations are not searched for, but dropped when they reach the front.
    """

    def __init__(self) -> None:
        self._entries: deque[tuple[int, FlowView]] = deque()

    def push(self, flow: FlowView, number: int) -> None:
        entries = self._entries
        if entries and number < entries[-1][0]:  # it returns to its queue, which is rare
            insort(entries, (number, flow), key=lambda entry: entry[0])
        else:
            entries.append((number, flow))

    def first(self) -> FlowView | None:
        """Return the flow whose head has waited longest."""
        entries = self._entries
        while entries:
            number, flow = entries[0]
            if flow.queued and flow.head.number == number:
                return flow
            entries.popleft()
        return None

    def __iter__(self) -> Iterator[tuple[int, FlowView]]:
        """Iterate over number and flow of every entry, including those to be dropped."""
        return iter(self._entries)


class InArrivalOrder(Queueing):
    """The base of a policy that keeps all flows of its domain in `self.order`."""

    def __init__(self, params: Params, generator: RandomSource) -> None:
        super().__init__(params, generator)
        self.order = ArrivalOrder()

    def enqueued(self, flow: FlowView, invocation: InvocationView, view: View) -> None:
        self.order.push(flow, invocation.number)
