"""What happens to transfers: who joins and leaves, and what follows from an answer, an arrival, or a failure.

Every method is called with the lock held and does no I/O but to make, open and remove files of the cache. What is to be
told to others is kept in `due` until the lock is free.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeAlias

from aliquot.storage.cache.agenda import SPARE
from aliquot.storage.cache.base import CacheSettings
from aliquot.storage.cache.body import Body
from aliquot.storage.cache.disk import Disk
from aliquot.storage.cache.entry import Entry
from aliquot.storage.cache.lanes import Lanes
from aliquot.storage.cache.rooms import Rooms
from aliquot.storage.cache.shelf import Shelf
from aliquot.storage.cache.ticket import Claim
from aliquot.storage.cache.transfer import Reader, State, Transfer, Waiter
from aliquot.storage.errors import ChangedError, StorageError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import FileKey, Listed

HandOver: TypeAlias = Callable[[Waiter, Entry, bool, float], bool]  # False: its file is not there

MOST_FAILURES = 3  # in a row, before whoever waits is told
RETRY_S = (0.1, 0.4, 1.0)
MOST_CHANGES = 3


class Flights:
    def __init__(self, settings: CacheSettings, shelf: Shelf, disk: Disk, hand_over: HandOver) -> None:
        self.settings = settings
        self.shelf = shelf
        self.transfers: dict[FileKey, Transfer] = {}
        self.rooms = Rooms(shelf, self.transfers, lambda transfer, error, now: self.fail(transfer, error, now=now))
        self.due: list[Callable[[], object]] = []
        self._disk = disk
        self._numbers = count()
        self._lanes: dict[str, Lanes] = {}  # by link
        self._hand_over = hand_over

    def join(self, key: FileKey, origin: Origin, waiter: Waiter, *, now: float) -> Transfer:
        """One more waits for this file; the first sets it going."""
        transfer = self._transfer(key, origin, now=now)
        transfer.waiting.append(waiter)
        waiter.claim.watch(lambda: transfer.moved_bytes)
        if transfer.state is State.MOVING:
            self.consider(transfer, now=now)
        return transfer

    def read(self, entry: Entry, origin: Origin, reader: Reader, ahead: int, *, now: float) -> None:
        """One more waits for a part of an open file; up to `ahead` chunks after it are brought as well."""
        under_way = self.transfers.get(entry.key)
        if entry.gone or (under_way is not None and under_way.origin.identity != entry.origin):
            error = ChangedError(f"{entry.key}: has changed, or was removed, since it was opened")
            self.due.append(lambda: reader.claim.fail(error))
            return
        transfer = self._transfer(entry.key, origin, now=now)
        if transfer.entry is None:
            self._take_up(transfer, entry, now=now)
        transfer.readers.append(reader)
        chunks = entry.chunks_of(reader.offset, reader.length)
        for chunk in range(chunks.stop, min(chunks.stop + ahead, entry.chunk_count)):
            transfer.want(chunk)
        for chunk in reversed(chunks):
            transfer.want(chunk, first=True)

    def leave(self, transfer: Transfer, claim: Claim[Any], *, now: float) -> None:
        """Whoever held the claim has cancelled."""
        transfer.waiting = [waiter for waiter in transfer.waiting if waiter.claim is not claim]
        transfer.readers = [reader for reader in transfer.readers if reader.claim is not claim]
        self.let_go(transfer, now=now)

    def asked(self, transfer: Transfer, listed: Listed, *, ranged: bool, now: float) -> None:
        """The origin has said which version it has."""
        entry = self.shelf.entries.get(transfer.key)
        if entry is not None and not entry.is_of(listed, transfer.origin.identity):
            self.shelf.of(transfer.key.dataset).refetched += 1
            self.shelf.drop(entry, now=now)
            entry = None
        if entry is not None and not ranged and not entry.whole and (entry.pins or entry.digests):
            self.shelf.drop(entry, now=now)  # a copy would take its place under those who read parts of it
            entry = None
        if transfer.entry is not None and transfer.entry is not entry:
            self._leave_behind(transfer, transfer.entry, now=now)
        if entry is None:
            body = Body(self._disk.arriving())
            body.create(listed.size)
            entry = Entry(transfer.key, listed, transfer.origin.identity, body, self.settings.chunk_bytes)
            entry.predicted = transfer.is_for_prediction
            self.shelf.add(entry, now=now)
        if transfer.is_asked:
            entry.checked_s = now
        transfer.ranged = ranged
        transfer.brought = not entry.whole
        self._take_up(transfer, entry, now=now)
        self.consider(transfer, now=now)

    def _leave_behind(self, transfer: Transfer, old: Entry, *, now: float) -> None:
        """While the origin was asked, somebody went on to read what turns out to be of another version."""
        self._fail_readers(transfer, ChangedError(f"{transfer.key}: changed at its origin while it was read"))
        transfer.restart()
        self.shelf.unreserve(old)
        self.shelf.end(old, now=now)

    def unchecked(self, transfer: Transfer, *, now: float) -> bool:
        """The origin cannot be asked: who waits is given what is here, if it is here; False: it is not."""
        entry = self.shelf.entries.get(transfer.key)
        if entry is None or not (entry.whole and entry.trusted) or entry.origin != transfer.origin.identity:
            return False
        self.shelf.of(transfer.key.dataset).unchecked += 1
        transfer.attempt += 1  # what its origin may say yet is of no interest
        self._take_up(transfer, entry, now=now)
        self.consider(transfer, now=now)
        return True

    def consider(self, transfer: Transfer, *, now: float) -> None:
        """What the waiting can be given now, and what is to be brought for the others."""
        entry = transfer.entry
        if entry is None:
            return
        if entry.whole:
            self._serve(transfer, transfer.waiting, now=now)
        elif transfer.ranged and entry.listed.size > self.settings.whole_bytes:
            self._serve(transfer, [waiter for waiter in transfer.waiting if waiter.opens], now=now)
        if transfer.entry is not entry:
            return
        if transfer.waiting and not transfer.whole:
            self._bring_all(transfer, entry, now=now)
        if transfer.whole and entry.complete and not entry.whole and transfer.state is State.MOVING:
            transfer.state = State.COMPLETE
        self.let_go(transfer, now=now)

    def _bring_all(self, transfer: Transfer, entry: Entry, *, now: float) -> None:
        here = sum(entry.span(chunk)[1] for chunk in entry.digests)
        wanted_bytes = entry.listed.size - here - entry.reserved_bytes
        if self.rooms.make(transfer, wanted_bytes, now=now):
            self.shelf.reserve(entry, wanted_bytes)
            transfer.whole = True
            for chunk in entry.missing():
                transfer.want(chunk)
            return
        if transfer.ranged and not transfer.is_asked:
            transfer.must_ask = True
            self.again(transfer, now=now)
            return
        if transfer.ranged:  # it need not be here all at once to be read
            self._serve(transfer, [waiter for waiter in transfer.waiting if waiter.opens], now=now)
        error = self.rooms.lack(entry)
        for waiter in transfer.waiting:
            self.due.append(lambda waiter=waiter: waiter.claim.fail(error))  # type: ignore[misc]
        transfer.waiting = []

    def arrived(
        self, transfer: Transfer, chunk: int, digest: bytes, *, is_hole: bool, is_sure: bool, now: float
    ) -> list[Reader]:
        """Those who have all they waited for: they are to be given it."""
        entry = transfer.entry
        if entry is None or chunk in entry.digests:
            return []
        transfer.failures = 0
        entry.digests[chunk] = digest
        length = entry.span(chunk)[1]
        if is_hole:
            entry.holes.add(chunk)
        if not is_sure:
            entry.doubtful.add(chunk)
        self.shelf.arrived(entry, length, is_hole=is_hole)
        self.count_fetched(transfer, length)
        transfer.count_chunk(length, now=now)
        served = self._ready(transfer, entry)
        if entry.complete and not entry.whole and transfer.state is State.MOVING:
            transfer.state = State.COMPLETE
        self.consider(transfer, now=now)
        return served

    def _ready(self, transfer: Transfer, entry: Entry) -> list[Reader]:
        served = [reader for reader in transfer.readers if entry.has(reader.offset, reader.length)]
        transfer.readers = [reader for reader in transfer.readers if reader not in served]
        return served

    def confirmed(self, transfer: Transfer, chunks: set[int], *, now: float) -> list[Reader]:
        """These chunks are of the version that they were taken for; as `arrived`."""
        entry = transfer.entry
        if entry is None:
            return []
        entry.doubtful -= chunks
        served = self._ready(transfer, entry)
        self.consider(transfer, now=now)
        return served

    def copied(self, transfer: Transfer, digests: list[bytes], taken_bytes: int, *, now: float) -> None:
        """All of it has come at once."""
        entry = transfer.entry
        if entry is None:
            return
        entry.digests = dict(enumerate(digests))
        entry.doubtful = set(entry.digests)
        self.count_fetched(transfer, entry.listed.size)
        self.shelf.unreserve(entry)
        self.shelf.used_bytes -= entry.disk_bytes
        entry.disk_bytes = min(taken_bytes, entry.listed.size)
        self.shelf.used_bytes += entry.disk_bytes
        transfer.wanted.clear()
        self.consider(transfer, now=now)

    def count_fetched(self, transfer: Transfer, length: int) -> None:
        stats = self.shelf.of(transfer.key.dataset)
        stats.fetched_bytes += length
        if transfer.is_for_prediction:
            stats.prefetched_bytes += length

    def committed(self, transfer: Transfer, *, now: float) -> list[Reader]:
        """It is whole, verified, and in its place. As `arrived`."""
        entry = transfer.entry
        if entry is None:
            return []
        entry.whole = True
        entry.doubtful.clear()
        entry.reload_s = now - transfer.started_s
        entry.checked_s = now
        self.shelf.unreserve(entry)
        transfer.state = State.MOVING
        served = self._ready(transfer, entry)
        self.consider(transfer, now=now)
        if self._disk.crowded(len(self.shelf.entries)):
            with suppress(OSError):  # the old one is good for a while yet
                self._disk.rewrite(self.shelf.entries.values())
        return served

    def changed(self, transfer: Transfer, *, now: float) -> None:
        """The origin has another version than the one that is being brought: from the beginning, a few times."""
        transfer.changes += 1
        gone = ChangedError(f"{transfer.key}: changed at its origin while it was read")
        self._fail_readers(transfer, gone)
        self.again(transfer, now=now)
        if transfer.changes > MOST_CHANGES:
            text = f"{transfer.key}: changed {transfer.changes} times while it was brought; try again later"
            self.fail(transfer, ChangedError(text), now=now)

    def again(self, transfer: Transfer, *, now: float) -> None:
        """From the beginning, with nothing of what has come so far."""
        entry = transfer.entry
        if entry is not None:
            self.shelf.unreserve(entry)
            self.shelf.drop(entry, now=now)
            self.shelf.end(entry, now=now)
        transfer.restart()
        self.let_go(transfer, now=now)

    def failed_once(self, transfer: Transfer, chunk: int, error: StorageError, *, now: float) -> None:
        """A step failed in a way that may pass: it is tried again a few times."""
        transfer.failures += 1
        if transfer.failures > MOST_FAILURES:
            self.fail(transfer, error, now=now)
            return
        transfer.not_before_s = now + RETRY_S[transfer.failures - 1]
        if chunk >= 0:
            if transfer.entry is not None and not transfer.whole:
                self.shelf.release(transfer.entry, transfer.entry.span(chunk)[1])
            transfer.want(chunk, first=True)

    def fail(self, transfer: Transfer, error: Exception, *, now: float) -> None:
        """Whoever waits is told; nothing of it is left behind but what is open."""
        for waiter in transfer.waiting:
            self.due.append(lambda waiter=waiter: waiter.claim.fail(error))  # type: ignore[misc]
        transfer.waiting = []
        self._fail_readers(transfer, error)
        transfer.state = State.MOVING
        transfer.wanted.clear()
        self.let_go(transfer, now=now)

    def _fail_readers(self, transfer: Transfer, error: Exception) -> None:
        for reader in transfer.readers:
            self.due.append(lambda reader=reader: reader.claim.fail(error))  # type: ignore[misc]
        transfer.readers = []

    def let_go(self, transfer: Transfer, *, now: float) -> None:
        """If nobody waits any more, the transfer ends. What is read by parts is kept, what was to come whole is not."""
        entry = transfer.entry
        # What is read ahead for an open file is brought although nobody waits for it yet; and what has come part by
        # part, and is all here, gets its place.
        is_all = transfer.state is State.COMPLETE and not transfer.whole
        wanted_still = entry is not None and (is_all or (entry.pins > 0 and transfer.has_work))
        if transfer.waiting or transfer.readers or wanted_still or self.transfers.get(transfer.key) is not transfer:
            return
        del self.transfers[transfer.key]
        transfer.ended()
        if entry is None:
            return
        self.shelf.unreserve(entry)
        if not entry.whole and entry.pins == 0 and (transfer.whole or not entry.digests):
            self.shelf.drop(entry, now=now)
        self.shelf.end(entry, now=now)

    def _serve(self, transfer: Transfer, waiters: list[Waiter], *, now: float) -> None:
        entry = transfer.entry
        if entry is None:
            return
        served = [waiter for waiter in waiters if self._hand_over(waiter, entry, transfer.brought, now)]
        transfer.waiting = [waiter for waiter in transfer.waiting if waiter not in served]
        if len(served) < len(waiters):  # its file has been taken from under us
            self.again(transfer, now=now)

    def _transfer(self, key: FileKey, origin: Origin, *, now: float) -> Transfer:
        transfer = self.transfers.get(key)
        if transfer is not None and transfer.origin.identity != origin.identity:
            transfer.attempt += 1  # what is under way for it is of no interest: it ends here
            self.fail(transfer, ChangedError(f"{key}: its dataset has another origin now"), now=now)
            transfer = None
        if transfer is None:
            workers = self.settings.workers
            lanes = self._lanes.setdefault(origin.link, Lanes(workers - workers // SPARE))
            transfer = self.transfers[key] = Transfer(key, origin, next(self._numbers), lanes, now=now)
        return transfer

    def _take_up(self, transfer: Transfer, entry: Entry, *, now: float) -> None:
        transfer.entry = entry
        transfer.state = State.MOVING
        self.shelf.begin(entry)
