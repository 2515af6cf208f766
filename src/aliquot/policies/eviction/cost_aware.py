"""Ours: what costs least to do without goes first.

The worth of keeping an entry is what bringing it back would take, times how soon it is likely to be needed, for each
byte it holds: `reload_s / next_use_s / bytes`. The expectation moves as time passes, so the heap's order is a first
guess: the worth of the few that seem least worth is looked at again, and the least of those goes.
"""

from heapq import heapify, heappop, heappush

from aliquot.core.interfaces import E, Eviction, Params

LOOK_AT = 4
MIN_NEXT_USE_S = 1e-3  # sooner than this is at once
_SLACK = 64


class CostAware(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._entries: dict[int, E] = {}
        self._worth: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def add(self, entry: E, *, now: float) -> None:
        number = entry.id
        self._entries[number] = entry
        worth = self._worth[number] = _worth(entry, now)
        heappush(self._heap, (worth, number))
        if len(self._heap) > _SLACK + 4 * len(self._entries):
            self._heap = [(worth, number) for number, worth in self._worth.items()]
            heapify(self._heap)

    def remove(self, entry: E) -> None:
        self._entries.pop(entry.id, None)
        self._worth.pop(entry.id, None)

    def victim(self, *, now: float) -> E | None:
        looked_at: list[tuple[float, int]] = []
        while self._heap and len(looked_at) < LOOK_AT:
            worth, number = heappop(self._heap)
            if self._worth.get(number) == worth:
                del self._worth[number]  # an entry with the same worth as before may be in the heap twice
                looked_at.append((_worth(self._entries[number], now), number))
        for worth, number in looked_at:
            self._worth[number] = worth
            heappush(self._heap, (worth, number))
        return self._entries[min(looked_at)[1]] if looked_at else None


def _worth(entry: E, now: float) -> float:
    next_use_s = entry.next_use_s(now)
    if next_use_s is None:  # seen once: nothing speaks for another use
        return 0.0
    return entry.reload_s / (max(next_use_s, MIN_NEXT_USE_S) * max(entry.bytes, 1))
