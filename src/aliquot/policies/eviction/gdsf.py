"""GreedyDual-Size-Frequency, known from web caches and from keep-alive for functions.

The priority of an entry is `clock + uses * reload_s / bytes`. The lowest is evicted, and of equal ones the least
recently used. The clock then advances to its priority, so that old uses count less over time.
"""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from aliquot.core.interfaces import E, Eviction, Params

_SLACK = 64  # stale heap entries tolerated on top of three each


class _HeapEntry(NamedTuple):
    priority: float
    turn: int
    number: int


class Gdsf(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._clock = 0.0
        self._turn = 0
        self._entries: dict[int, tuple[_HeapEntry, E]] = {}
        self._heap: list[_HeapEntry] = []

    def add(self, entry: E, *, now: float) -> None:
        self._turn += 1
        priority = self._clock + entry.uses * entry.reload_s / max(entry.bytes, 1)
        item = _HeapEntry(priority, self._turn, entry.id)
        self._entries[entry.id] = (item, entry)
        heappush(self._heap, item)
        if len(self._heap) > _SLACK + 4 * len(self._entries):
            self._heap = [known for known, _ in self._entries.values()]
            heapify(self._heap)

    def remove(self, entry: E) -> None:
        self._entries.pop(entry.id, None)

    def victim(self, *, now: float) -> E | None:
        while self._heap:
            first = self._heap[0]
            known = self._entries.get(first.number)
            if known is not None and known[0] == first:
                self._clock = first.priority
                return known[1]
            heappop(self._heap)
        return None
