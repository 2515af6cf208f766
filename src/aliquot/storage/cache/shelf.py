"""What is in the cache and who goes when room is short. Whoever calls holds the cache's lock."""

from aliquot.core.errors import InputError
from aliquot.core.interfaces import Eviction
from aliquot.policies.eviction import EVICTION
from aliquot.storage.cache.base import DatasetStats
from aliquot.storage.cache.body import Body
from aliquot.storage.cache.entry import Entry
from aliquot.storage.records import FileKey


class Shelf:
    def __init__(self, limit_bytes: int, eviction: str) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0  # on disk or set aside
        self.entries: dict[FileKey, Entry] = {}
        self.stats: dict[str, DatasetStats] = {}
        self.unwanted: list[Body] = []  # to be removed from disk once the lock is free
        self._idle_bytes = 0  # of those that may go
        self._policy = _policy(eviction)

    def of(self, dataset: str) -> DatasetStats:
        return self.stats.setdefault(dataset, DatasetStats())

    def add(self, entry: Entry, *, now: float) -> None:
        """A new entry; its bytes count from now on."""
        self.entries[entry.key] = entry
        self.used_bytes += entry.disk_bytes + entry.reserved_bytes
        self.settle(entry, now=now)

    def pin(self, entry: Entry) -> None:
        entry.pins += 1
        self._not_idle(entry)
        self._policy.remove(entry)

    def unpin(self, entry: Entry, *, now: float) -> None:
        entry.pins -= 1
        self.settle(entry, now=now)

    def begin(self, entry: Entry) -> None:
        """A transfer has to do with it. It may grow: the policy is to know it by its new size, then."""
        entry.busy = True
        self._not_idle(entry)
        if not entry.whole:
            self._policy.forget(entry)
        else:
            self._policy.remove(entry)

    def end(self, entry: Entry, *, now: float) -> None:
        entry.busy = False
        self.settle(entry, now=now)

    def settle(self, entry: Entry, *, now: float) -> None:
        """Nobody may need it any more: then it may go, or is gone for good."""
        if entry.pins or entry.busy:
            return
        if entry.gone:
            self.used_bytes -= entry.disk_bytes + entry.reserved_bytes
            entry.disk_bytes = entry.reserved_bytes = 0
        elif self.entries.get(entry.key) is entry:
            if not entry.idle:
                entry.idle = True
                self._idle_bytes += entry.disk_bytes
            self._policy.add(entry, now=now)

    def _not_idle(self, entry: Entry) -> None:
        if entry.idle:
            entry.idle = False
            self._idle_bytes -= entry.disk_bytes

    def drop(self, entry: Entry, *, now: float) -> None:
        """It leaves the cache; its bytes count as long as somebody has it open."""
        if entry.gone:
            return
        entry.gone = True
        self._not_idle(entry)
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]
        self._policy.forget(entry)
        self.unwanted.append(entry.body)
        self.settle(entry, now=now)

    def make_room(self, wanted_bytes: int, *, now: float) -> bool:
        """Evict until there is room, in the policy's order; False when it cannot be had, and then nobody has gone."""
        if self.used_bytes + wanted_bytes - self._idle_bytes > self.limit_bytes:
            return False
        while self.used_bytes + wanted_bytes > self.limit_bytes:
            if not self.evict(now=now):
                return False
        return True

    def evict(self, *, now: float) -> bool:
        victim = self._policy.victim(now=now)
        if victim is None:
            return False
        stats = self.of(victim.key.dataset)
        stats.evicted += 1
        stats.evicted_bytes += victim.disk_bytes
        self.drop(victim, now=now)
        return True

    def reserve(self, entry: Entry, wanted_bytes: int) -> None:
        entry.reserved_bytes += wanted_bytes
        self.used_bytes += wanted_bytes

    def release(self, entry: Entry, length: int) -> None:
        """Of what was set aside, that much will not come."""
        entry.reserved_bytes -= length
        self.used_bytes -= length

    def unreserve(self, entry: Entry) -> None:
        self.used_bytes -= entry.reserved_bytes
        entry.reserved_bytes = 0

    def arrived(self, entry: Entry, length: int, *, is_hole: bool) -> None:
        """Of what was set aside, that much is on disk; a hole takes no room."""
        entry.reserved_bytes -= length
        if is_hole:
            self.used_bytes -= length
        else:
            entry.disk_bytes += length

    def punched(self, entry: Entry, length: int) -> None:
        entry.disk_bytes -= length
        self.used_bytes -= length


def _policy(name: str) -> Eviction[Entry]:
    kind = EVICTION.get(name)
    if kind is None:
        raise InputError(f"cache eviction {name!r}: one of {', '.join(EVICTION)}")
    return kind(kind.params_type())
