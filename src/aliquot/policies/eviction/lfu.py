"""Least frequently used: evict the entry with the fewest uses, and of equal ones the least recently used."""

from collections import OrderedDict

from aliquot.core.interfaces import E, Eviction, Params


class Lfu(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._uses: dict[int, int] = {}  # by entry, including entries in use
        self._by_uses: dict[int, OrderedDict[int, E]] = {}  # in order of last use
        self._min_uses = 1  # no entry has fewer uses

    def add(self, entry: E, *, now: float) -> None:
        self.remove(entry)
        uses = self._uses[entry.id] = self._uses.get(entry.id, 0) + 1
        self._by_uses.setdefault(uses, OrderedDict())[entry.id] = entry
        self._min_uses = min(self._min_uses, uses)

    def remove(self, entry: E) -> None:
        uses = self._uses.get(entry.id, 0)
        listed = self._by_uses.get(uses)
        if listed is not None and listed.pop(entry.id, None) is not None and not listed:
            del self._by_uses[uses]

    def forget(self, entry: E) -> None:
        self.remove(entry)
        self._uses.pop(entry.id, None)

    def uses(self, entry: E) -> int:
        return self._uses.get(entry.id, 0)

    def count(self, entry: E, uses: int) -> None:
        """Set the number of uses that a new entry starts with."""
        self._uses[entry.id] = uses

    def victim(self, *, now: float) -> E | None:
        if not self._by_uses:
            return None
        if self._min_uses not in self._by_uses:
            self._min_uses = min(self._by_uses)
        return next(iter(self._by_uses[self._min_uses].values()))
