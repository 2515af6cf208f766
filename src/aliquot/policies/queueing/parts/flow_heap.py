"""A priority queue of flows, or of other objects with an index, whose keys may change, in O(log n)."""

from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from aliquot.core.view import FlowView

K = TypeVar("K", float, tuple[float, float], tuple[float, int], tuple[int, int])

_SLACK = 64  # stale entries tolerated on top of three each


class Indexed(Protocol):
    @property
    def index(self) -> int: ...


N = TypeVar("N", bound=Indexed)


class KeyedHeap(Generic[N, K]):
    """A heap with the smallest key first, and the lowest index first among equal keys.

    A changed key is pushed in addition to the old one, which is dropped when it reaches the front. The heap is rebuilt
    when stale entries outnumber the others, so its size stays proportional to them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[K, int, N]] = []
        self._keys: dict[int, K] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def set(self, item: N, key: K) -> None:
        """Add the item, or change its key."""
        index, keys = item.index, self._keys
        if keys.get(index) == key:
            return
        keys[index] = key
        heappush(self._heap, (key, index, item))
        if len(self._heap) > _SLACK + 4 * len(keys):
            self._drop_stale()

    def discard(self, item: N) -> None:
        self._keys.pop(item.index, None)

    def first(self) -> N | None:
        entry = self.first_entry()
        return entry[2] if entry else None

    def first_key(self) -> K | None:
        entry = self.first_entry()
        return entry[0] if entry else None

    def smallest(self, count: int) -> list[N]:
        """Return so many items with the smallest keys, in order."""
        found: dict[int, tuple[K, int, N]] = {}
        while len(found) < count and (entry := self.first_entry()) is not None:
            found[entry[1]] = heappop(self._heap)
            while self._heap and self._heap[0][:2] == entry[:2]:  # the same entry once more
                heappop(self._heap)
        for entry in found.values():
            heappush(self._heap, entry)
        return [item for _, _, item in found.values()]

    def items(self) -> list[N]:
        """Return all items, in no particular order but always in the same one."""
        return list({entry[1]: entry[2] for entry in self._heap if entry[1] in self._keys}.values())

    def take(self, up_to: K) -> list[N]:
        """Remove and return the items with a key up to this one, in order."""
        taken = []
        while (entry := self.first_entry()) is not None and entry[0] <= up_to:
            taken.append(entry[2])
            self.discard(entry[2])
        return taken

    def first_entry(self) -> tuple[K, int, N] | None:
        """Return the key, index and item of the first entry."""
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


class FlowHeap(KeyedHeap[FlowView, K]):
    """A heap of flows, with the flow deployed first among equal keys."""
