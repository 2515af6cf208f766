"""GreedyDual-Size-Frequency: a classic of web caches, and of keep-alive for functions.

The priority of an entry is `clock + uses * reload_s / bytes`; the lowest goes, and the clock moves on to its priority,
so that what was useful long ago ages.
"""

from heapq import heapify, heappop, heappush

from aliquot.core.interfaces import E, Eviction, Params

_SLACK = 64


class GreedyDual(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._clock = 0.0
        self._entries: dict[int, tuple[float, E]] = {}
        self._heap: list[tuple[float, int]] = []

    def add(self, entry: E, *, now: float) -> None:
        priority = self._clock + entry.uses * entry.reload_s / max(entry.bytes, 1)
        self._entries[entry.id] = (priority, entry)
        heappush(self._heap, (priority, entry.id))
        if len(self._heap) > _SLACK + 4 * len(self._entries):
            self._heap = [(known, number) for number, (known, _) in self._entries.items()]
            heapify(self._heap)

    def remove(self, entry: E) -> None:
        self._entries.pop(entry.id, None)

    def victim(self, *, now: float) -> E | None:
        while self._heap:
            priority, number = self._heap[0]
            known = self._entries.get(number)
            if known is not None and known[0] == priority:
                self._clock = priority
                return known[1]
            heappop(self._heap)
        return None
