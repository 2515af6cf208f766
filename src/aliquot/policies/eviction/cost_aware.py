"""Cost-aware eviction, our own policy: evict the entry that is worth least to keep.

The worth of an entry is `reload_s / next_use_s / bytes`: the time to load it again, divided by the expected time until
its next use and by its size. The expected time changes as time passes, so the order of the heap is only a first guess.
The worth of its first few entries is computed again, and the entry with the lowest is evicted.
"""

from heapq import heapify, heappop, heappush

from aliquot.core.interfaces import E, Eviction, Params

CANDIDATES = 16  # entries whose worth is computed again; as many as a pool of the published size has
MIN_NEXT_USE_S = 1e-3  # a shorter time counts as this one
_SLACK = 64  # stale heap entries tolerated on top of three each


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
        heap, worths, entries = self._heap, self._worth, self._entries
        candidates: list[tuple[float, int]] = []
        while heap and len(candidates) < CANDIDATES:
            worth, number = heappop(heap)
            if worths.get(number) == worth:
                del worths[number]  # the heap may hold an entry twice with the same worth
                entry = entries[number]  # its worth as in `_worth`, without a call
                next_use_s = entry.next_use_s(now)
                if next_use_s is None:
                    candidates.append((0.0, number))
                else:
                    next_use_s = max(next_use_s, MIN_NEXT_USE_S)
                    candidates.append((entry.reload_s / (next_use_s * (entry.bytes or 1)), number))
        if not candidates:
            return None
        for candidate in candidates:
            worths[candidate[1]] = candidate[0]
            heappush(heap, candidate)
        return entries[min(candidates)[1]]


def _worth(entry: E, now: float) -> float:
    next_use_s = entry.next_use_s(now)
    if next_use_s is None:  # used once, so nothing suggests another use
        return 0.0
    return entry.reload_s / (max(next_use_s, MIN_NEXT_USE_S) * max(entry.bytes, 1))
