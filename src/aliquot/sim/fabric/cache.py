"""The simulated node's file cache: a size limit and an eviction policy. Open files are never evicted."""

from typing import Any

from aliquot.core.prefetching.records import FileKey
from aliquot.policies.eviction import EVICTION


class CachedFile:
    """A cached file, as eviction policies see it."""

    __slots__ = ("bytes", "id", "key", "open", "reload_s", "unopened", "uses")

    def __init__(self, number: int, key: FileKey, size: int, reload_s: float, *, unopened: bool) -> None:
        self.id = number
        self.key = key
        self.bytes = size
        self.reload_s = reload_s
        self.uses = 1
        self.open = 0  # number of calls that have it open
        self.unopened = unopened  # prefetched and not opened yet

    def next_use_s(self, now: float) -> float | None:
        return None


class FileCache:
    """The files on the node."""

    def __init__(self, limit: int, eviction: str) -> None:
        kind = EVICTION[eviction]
        self._order: Any = kind(kind.params_type())
        self._limit = limit
        self._files: dict[FileKey, CachedFile] = {}
        self._numbers: dict[FileKey, int] = {}
        self._bytes = 0
        self.wasted_bytes = 0  # prefetched files that were evicted or not admitted before an open

    def __contains__(self, key: FileKey) -> bool:
        return key in self._files

    def add(self, key: FileKey, size: int, reload_s: float, now: float, *, unopened: bool) -> None:
        """Add a file, evicting others if necessary. A file that does not fit is dropped."""
        while self._bytes + size > self._limit:
            victim = self._order.victim(now=now) if size <= self._limit else None
            if victim is None:
                self.wasted_bytes += size if unopened else 0
                return
            self._order.forget(victim)
            self._bytes -= victim.bytes
            self.wasted_bytes += victim.bytes if victim.unopened else 0
            del self._files[victim.key]
        number = self._numbers.setdefault(key, len(self._numbers))  # kept, because policies remember evicted files
        entry = self._files[key] = CachedFile(number, key, size, reload_s, unopened=unopened)
        self._bytes += size
        self._order.add(entry, now=now)

    def open(self, key: FileKey) -> CachedFile | None:
        """Open a cached file, which protects it from eviction until `close`. Return None if it is not cached."""
        entry = self._files.get(key)
        if entry is not None:
            self._order.remove(entry)
            entry.uses += 1
            entry.open += 1
            entry.unopened = False
        return entry

    def close(self, entry: CachedFile, now: float) -> None:
        entry.open -= 1
        if not entry.open:
            self._order.add(entry, now=now)

    def is_unopened(self, key: FileKey) -> bool:
        entry = self._files.get(key)
        return entry is not None and entry.unopened

    def unopened_bytes(self) -> int:
        """Return the bytes of cached files that were prefetched and not opened yet."""
        return sum(entry.bytes for entry in self._files.values() if entry.unopened)
