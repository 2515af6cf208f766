"""Room for what is to come: who goes for it, and what is done where nobody can."""

from collections.abc import Callable, Mapping

from aliquot.storage.cache.base import Urgency
from aliquot.storage.cache.entry import Entry
from aliquot.storage.cache.shelf import Shelf
from aliquot.storage.cache.transfer import Transfer
from aliquot.storage.errors import RoomError
from aliquot.storage.records import FileKey

AHEAD = 8  # chunks that are brought for somebody who reads in order, before they are asked for


class Rooms:
    """Called with the lock held. `give_up` ends a transfer with an error."""

    def __init__(
        self, shelf: Shelf, transfers: Mapping[FileKey, Transfer], give_up: Callable[[Transfer, Exception, float], None]
    ) -> None:
        self._shelf = shelf
        self._transfers = transfers
        self._give_up = give_up

    def make(self, transfer: Transfer, wanted_bytes: int, *, now: float) -> bool:
        """By eviction; for what is waited for, what nobody waits for gives way. False: it cannot be had."""
        if self._shelf.make_room(wanted_bytes, now=now):
            return True
        if transfer.urgency is not Urgency.DEMAND or wanted_bytes > self._shelf.limit_bytes:
            return False
        for other in sorted(self._transfers.values(), key=lambda other: -other.number):  # the latest goes first
            if other.urgency is not Urgency.DEMAND and other.entry is not None:
                self._give_up(other, RoomError(f"{other.key}: gave way to {transfer.key}, which is waited for"), now)
                if self._shelf.make_room(wanted_bytes, now=now):
                    return True
        return False

    def lack(self, entry: Entry) -> RoomError:
        shelf = self._shelf
        if entry.listed.size > shelf.limit_bytes:
            why = f"the cache holds {shelf.limit_bytes} bytes in all (aliquot up --cache-size)"
        else:
            why = f"{shelf.used_bytes} of the cache's {shelf.limit_bytes} bytes are of files that are open or coming"
        return RoomError(f"{entry.key}: no room for its {entry.listed.size} bytes: {why}")

    def reserve_chunk(self, transfer: Transfer, chunk: int, *, now: float) -> bool:
        """Where room was not set aside for all of the file: it is for this chunk. Else older chunks of it give way."""
        entry = transfer.entry
        if transfer.whole or entry is None:
            return True
        length = entry.span(chunk)[1]
        waited_for = chunk in _waited_for(transfer, entry)
        # What is only read ahead takes no chunk's place but of those that are well behind.
        may_go = _not_waited_for(transfer, entry) if waited_for else set(range(chunk - AHEAD - 1))
        if self.make(transfer, length, now=now) or self._punch(entry, length, may_go):
            self._shelf.reserve(entry, length)
            return True
        if waited_for:
            self._give_up(transfer, self.lack(entry), now)
        return False

    def evict_for(self, transfer: Transfer, *, now: float) -> bool:
        """The disk is full before the cache is: somebody goes, or what nobody waits for does. False: nobody can."""
        if self._shelf.evict(now=now):
            return True
        if transfer.urgency is Urgency.DEMAND:
            others = [
                other for other in self._transfers.values() if other.urgency is not Urgency.DEMAND and other.entry
            ]
            for other in others[-1:]:
                self._give_up(other, RoomError(f"{other.key}: gave way to {transfer.key}, which is waited for"), now)
                return True
        entry = transfer.entry
        return entry is not None and not transfer.whole and self._punch(entry, 0, _not_waited_for(transfer, entry))

    def _punch(self, entry: Entry, length: int, may_go: set[int]) -> bool:
        """Take chunks away again, those that came first, until there is room: a file larger than the cache flows by."""
        for chunk in [chunk for chunk in entry.digests if chunk in may_go and chunk not in entry.holes]:
            if not entry.body.punch(*entry.span(chunk)):
                return False
            del entry.digests[chunk]
            entry.doubtful.discard(chunk)
            entry.punched += 1
            self._shelf.punched(entry, entry.span(chunk)[1])
            if self._shelf.used_bytes + length <= self._shelf.limit_bytes:
                return True
        return False


def _waited_for(transfer: Transfer, entry: Entry) -> set[int]:
    return {chunk for reader in transfer.readers for chunk in entry.chunks_of(reader.offset, reader.length)}


def _not_waited_for(transfer: Transfer, entry: Entry) -> set[int]:
    return set(entry.digests) - _waited_for(transfer, entry)
