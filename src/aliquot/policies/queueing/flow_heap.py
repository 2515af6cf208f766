"""A priority queue of flows whose keys change, in O(log n)."""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from aliquot.core.view import FlowView

K = TypeVar("K", float, tuple[float, float], tuple[float, int], tuple[int, int])

_SLACK = 64  # stale entries tolerated on top of three per flow


class FlowHeap(Generic[K]):
    """Smallest key first, ties to the flow that was deployed first.

    A changed key is pushed beside the old one, which is dropped when it comes up; the heap is rebuilt when stale
    entries outnumber the flows, so it stays in proportion to them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[K, int, FlowView]] = []
        self._keys: dict[int, K] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, flow: FlowView) -> bool:
        return flow.index in self._keys

    def set(self, flow: FlowView, key: K) -> None:
        """The flow is in, with this key."""
        if self._keys.get(flow.index) == key:
            return
        self._keys[flow.index] = key
        heappush(self._heap, (key, flow.index, flow))
        if len(self._heap) > _SLACK + 4 * len(self._keys):
            self._drop_stale()

    def discard(self, flow: FlowView) -> None:
        self._keys.pop(flow.index, None)

    def first(self) -> FlowView | None:
        entry = self._first()
        return entry[2] if entry else None

    def first_key(self) -> K | None:
        entry = self._first()
        return entry[0] if entry else None

    def _first(self) -> tuple[K, int, FlowView] | None:
        heap, keys = self._heap, self._keys
        while heap:
            entry = heap[0]
            if keys.get(entry[1]) == entry[0]:
                return entry
            heappop(heap)
        return None

    def _drop_stale(self) -> None:
        keys = self._keys
        self._heap = list({e[1]: e for e in self._heap if keys.get(e[1]) == e[0]}.values())
        heapify(self._heap)
