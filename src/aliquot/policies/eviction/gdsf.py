"""GreedyDual-Size-Frequency: a classic of web caches, and of keep-alive for functions.

The priority of an entry is `clock + uses * reload_s / bytes`; the lowest goes, of equals the one used longest ago, and
the clock moves on to its priority, so that what was useful long ago ages.
"""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from aliquot.core.interfaces import E, Eviction, Params

_SLACK = 64


class _Place(NamedTuple):
    priority: float
    turn: int
    number: int


class Gdsf(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._clock = 0.0
        self._turn = 0
        self._entries: dict[int, tuple[_Place, E]] = {}
        self._heap: list[_Place] = []

    def add(self, entry: E, *, now: float) -> None:
        self._turn += 1
        priority = self._clock + entry.uses * entry.reload_s / max(entry.bytes, 1)
        place = _Place(priority, self._turn, entry.id)
        self._entries[entry.id] = (place, entry)
        heappush(self._heap, place)
        if len(self._heap) > _SLACK + 4 * len(self._entries):
            self._heap = [known for known, _ in self._entries.values()]
            heapify(self._heap)

    def remove(self, entry: E) -> None:
        self._entries.pop(entry.id, None)

    def victim(self, *, now: float) -> E | None:
        while self._heap:
            place = self._heap[0]
            known = self._entries.get(place.number)
            if known is not None and known[0] == place:
                self._clock = place.priority
                return known[1]
            heappop(self._heap)
        return None
