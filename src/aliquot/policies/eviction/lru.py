"""Least recently used: evict the entry that has been idle longest."""

from collections import OrderedDict

from aliquot.core.interfaces import E, Eviction, Params


class Lru(Eviction[E]):
    def __init__(self, params: Params) -> None:
        super().__init__(params)
        self._entries: OrderedDict[int, E] = OrderedDict()  # in order of last use

    def add(self, entry: E, *, now: float) -> None:
        self._entries[entry.id] = entry
        self._entries.move_to_end(entry.id)

    def remove(self, entry: E) -> None:
        self._entries.pop(entry.id, None)

    def victim(self, *, now: float) -> E | None:
        return next(iter(self._entries.values()), None)
