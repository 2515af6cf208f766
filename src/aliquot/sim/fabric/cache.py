"""The node's cache of files: bounded bytes, an eviction policy, and nothing that is open ever goes."""

from typing import Any

from aliquot.core.prefetching.records import FileKey
from aliquot.policies.eviction import EVICTION


class CachedFile:
    """A file on the node, as eviction policies see it."""

    __slots__ = ("bytes", "id", "key", "open", "reload_s", "unasked", "uses")

    def __init__(self, number: int, key: FileKey, size: int, reload_s: float, *, unasked: bool) -> None:
        self.id = number
        self.key = key
        self.bytes = size
        self.reload_s = reload_s
        self.uses = 1
        self.open = 0  # by so many calls
        self.unasked = unasked  # it was prefetched, and nobody has opened it yet

    def next_use_s(self, now: float) -> float | None:
        return None


class FileCache:
    def __init__(self, limit: int, eviction: str) -> None:
        kind = EVICTION[eviction]
        self._order: Any = kind(kind.params_type())
        self._limit = limit
        self._files: dict[FileKey, CachedFile] = {}
        self._numbers: dict[FileKey, int] = {}
        self._bytes = 0
        self.wasted_bytes = 0  # of files that went, or were turned away, before anybody opened them

    def __contains__(self, key: FileKey) -> bool:
        return key in self._files

    def add(self, key: FileKey, size: int, reload_s: float, now: float, *, unasked: bool) -> None:
        """It is here from now on, if there is room for it."""
        while self._bytes + size > self._limit:
            victim = self._order.victim(now=now) if size <= self._limit else None
            if victim is None:
                self.wasted_bytes += size if unasked else 0
                return
            self._order.forget(victim)
            self._bytes -= victim.bytes
            self.wasted_bytes += victim.bytes if victim.unasked else 0
            del self._files[victim.key]
        number = self._numbers.setdefault(key, len(self._numbers))  # the same again: policies remember who came back
        entry = self._files[key] = CachedFile(number, key, size, reload_s, unasked=unasked)
        self._bytes += size
        self._order.add(entry, now=now)

    def open(self, key: FileKey) -> CachedFile | None:
        """It cannot go before it is closed."""
        entry = self._files.get(key)
        if entry is not None:
            self._order.remove(entry)
            entry.uses += 1
            entry.open += 1
            entry.unasked = False
        return entry

    def close(self, entry: CachedFile, now: float) -> None:
        entry.open -= 1
        if not entry.open:
            self._order.add(entry, now=now)

    def is_unasked(self, key: FileKey) -> bool:
        entry = self._files.get(key)
        return entry is not None and entry.unasked

    def left_unasked(self) -> int:
        """Bytes that are here for nothing so far."""
        return sum(entry.bytes for entry in self._files.values() if entry.unasked)
