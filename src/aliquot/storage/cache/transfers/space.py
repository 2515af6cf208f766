"""The cache's entries and the bytes they use. Evicts idle entries when space is short."""

from aliquot.core.errors import InputError
from aliquot.core.interfaces import Eviction
from aliquot.policies.eviction import EVICTION
from aliquot.storage.cache.records import DatasetStats
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.records import FileKey


class CacheSpace:
    """Bytes count as used while they are on disk or reserved. An entry is idle if no handle or transfer uses it."""

    def __init__(self, limit_bytes: int, eviction: str) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0  # on disk or reserved
        self.entries: dict[FileKey, CacheEntry] = {}
        self.stats: dict[str, DatasetStats] = {}
        self._dropped: list[CacheEntry] = []
        self._idle_bytes = 0  # of entries that may be evicted
        self._policy = _policy(eviction)

    def stats_of(self, dataset: str) -> DatasetStats:
        return self.stats.setdefault(dataset, DatasetStats())

    def take_dropped(self) -> list[CacheEntry]:
        """Return the entries dropped since the last call. Their files are to be removed."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def add(self, entry: CacheEntry, *, now: float) -> None:
        self.entries[entry.key] = entry
        self.used_bytes += entry.disk_bytes + entry.reserved_bytes
        self.settle(entry, now=now)

    def pin(self, entry: CacheEntry) -> None:
        entry.pins += 1
        self._not_idle(entry)
        self._policy.remove(entry)

    def unpin(self, entry: CacheEntry, *, now: float) -> None:
        entry.pins -= 1
        self.settle(entry, now=now)

    def begin(self, entry: CacheEntry) -> None:
        """Mark an entry as used by a transfer. The policy forgets a growing one and later learns its new size."""
        entry.busy = True
        self._not_idle(entry)
        if not entry.whole:
            self._policy.forget(entry)
        else:
            self._policy.remove(entry)

    def end(self, entry: CacheEntry, *, now: float) -> None:
        entry.busy = False
        self.settle(entry, now=now)

    def settle(self, entry: CacheEntry, *, now: float) -> None:
        """Make an entry evictable, or release the bytes of a dropped one, if nothing uses it any more."""
        if entry.pins or entry.busy:
            return
        if entry.dropped:
            self.used_bytes -= entry.disk_bytes + entry.reserved_bytes
            entry.disk_bytes = entry.reserved_bytes = 0
        elif self.entries.get(entry.key) is entry:
            if not entry.idle:
                entry.idle = True
                self._idle_bytes += entry.disk_bytes
            self._policy.add(entry, now=now)

    def _not_idle(self, entry: CacheEntry) -> None:
        if entry.idle:
            entry.idle = False
            self._idle_bytes -= entry.disk_bytes

    def drop(self, entry: CacheEntry, *, now: float) -> None:
        """Take an entry out of the cache. Its bytes count until its last handle is closed."""
        if entry.dropped:
            return
        entry.dropped = True
        self._not_idle(entry)
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]
        self._policy.forget(entry)
        self._dropped.append(entry)
        self.settle(entry, now=now)

    def make_room(self, wanted_bytes: int, *, now: float) -> bool:
        """Evict entries until the bytes fit. Return False, without evicting any, if they cannot fit."""
        if self.used_bytes + wanted_bytes - self._idle_bytes > self.limit_bytes:
            return False
        while self.used_bytes + wanted_bytes > self.limit_bytes:
            if not self.evict(now=now):
                return False
        return True

    def evict(self, *, now: float) -> bool:
        """Drop the policy's next victim. Return False if there is none."""
        victim = self._policy.victim(now=now)
        if victim is None:
            return False
        stats = self.stats_of(victim.key.dataset)
        stats.evicted += 1
        stats.evicted_bytes += victim.disk_bytes
        self.drop(victim, now=now)
        return True

    def reserve(self, entry: CacheEntry, wanted_bytes: int) -> None:
        entry.reserved_bytes += wanted_bytes
        self.used_bytes += wanted_bytes

    def release(self, entry: CacheEntry, length: int) -> None:
        """Give back a part of the reserved bytes."""
        entry.reserved_bytes -= length
        self.used_bytes -= length

    def release_all(self, entry: CacheEntry) -> None:
        self.release(entry, entry.reserved_bytes)

    def arrived(self, entry: CacheEntry, length: int, *, is_hole: bool) -> None:
        """Turn reserved bytes into bytes on disk. A hole takes no space."""
        entry.reserved_bytes -= length
        if is_hole:
            self.used_bytes -= length
        else:
            entry.disk_bytes += length

    def replaced(self, entry: CacheEntry, disk_bytes: int) -> None:
        """Count the entry's new size on disk after its file was replaced as a whole."""
        self.release_all(entry)
        self.used_bytes += disk_bytes - entry.disk_bytes
        entry.disk_bytes = disk_bytes

    def freed(self, entry: CacheEntry, length: int) -> None:
        entry.disk_bytes -= length
        self.used_bytes -= length


def _policy(name: str) -> Eviction[CacheEntry]:
    kind = EVICTION.get(name)
    if kind is None:
        raise InputError(f"cache eviction {name!r}: one of {', '.join(EVICTION)}")
    return kind(kind.params_type())
