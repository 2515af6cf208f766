"""What workers do, one step at a time: ask an origin, bring a chunk, copy a file, put a whole one in its place."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from aliquot.storage.cache.body import Filling, check_against, digest_of_zeros, digests, read
from aliquot.storage.cache.disk import Disk
from aliquot.storage.cache.entry import Entry
from aliquot.storage.cache.flights import Flights
from aliquot.storage.cache.listings import Listings
from aliquot.storage.cache.transfer import Kind, Reader, Step, Transfer
from aliquot.storage.cache.troubles import Troubles
from aliquot.storage.errors import ChangedError, OriginError, StorageError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import Listed


class StoppedError(Exception):
    """Nobody waits for it any more."""


class Watch(Protocol):
    """Over workers that wait for origins."""

    def came_on(self) -> None:
        """Called by a worker that is at work by itself: an origin is not to blame for the time that this takes."""

    def heard(self, link: str) -> None:
        """Called by a worker whenever something has come from there: slow is not silent."""

    def call(self) -> None:
        """There is work for somebody. The lock is held."""

    def comes_on(self, step: Step) -> None:
        """The larger part of a chunk has come: another may begin."""

    def is_hung(self, link: str) -> bool:
        """Whether the link is to be left alone."""

    def goes_on(self, transfer: Transfer, moved: int) -> bool:
        """Whether a copy may go on; `moved` bytes have come since it was last asked."""


class Steps:
    """`deciding` takes the lock, and tells others what is due once it is free again; it gives the time."""

    def __init__(
        self,
        flights: Flights,
        disk: Disk,
        listings: Listings,
        deciding: Callable[[], AbstractContextManager[float]],
        watch: Watch,
    ) -> None:
        self._flights = flights
        self._troubles = Troubles(flights, listings)
        self._disk = disk
        self._listings = listings
        self._deciding = deciding
        self._watch = watch
        self._kinds = {
            Kind.ASK: self._ask,
            Kind.CHUNK: self._chunk,
            Kind.COPY: self._copy,
            Kind.CONFIRM: self._confirm,
            Kind.COMMIT: self._commit,
        }

    def perform(self, step: Step) -> None:
        try:
            self._kinds[step.kind](step)
        except StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits for the file is told
            with self._deciding() as now:
                step.transfer.running.discard(step)
                if _counts(step):
                    self._troubles.handle(step, error, now)
        finally:
            with self._deciding() as now:
                step.transfer.running.discard(step)
                if _counts(step):
                    self._flights.let_go(step.transfer, now=now)

    def _check_link(self, transfer: Transfer) -> None:
        if self._watch.is_hung(transfer.link):
            raise OriginError(f"{transfer.key}: its origin has left too many earlier questions unanswered")

    def _ask(self, step: Step) -> None:
        transfer = step.transfer
        with self._deciding() as now:
            entry = self._flights.shelf.entries.get(transfer.key)
        # Before the origin is asked: one that does not answer must find known what may be served without it.
        if entry is not None and entry.whole and not entry.trusted and not self.check(entry):
            entry = None
        # What is not here yet is brought as the version that it was last known to have: if it is another, that shows.
        listed = self._expected(transfer) if entry is None else None
        is_asked = listed is None
        if listed is None:
            self._check_link(transfer)
            listed = self._listings.ask(transfer.key, transfer.origin)
            self._watch.heard(transfer.link)
        ranged = transfer.origin.ranged(listed)
        with self._deciding() as now:
            step.transfer.running.discard(step)
            if _counts(step):
                transfer.is_asked = is_asked
                self._flights.asked(transfer, listed, ranged=ranged, now=now)

    def _expected(self, transfer: Transfer) -> Listed | None:
        """Not of what may be opened before a byte of it has come: that must be the version that there is."""
        if transfer.must_ask:
            return None
        expected = self._listings.expected(transfer.key, transfer.origin)
        return None if expected is None or expected.size > self._flights.settings.whole_bytes else expected

    def check(self, entry: Entry) -> bool:
        """Read a whole file and compare; one that is not what it was is dropped."""
        try:
            fd = entry.body.acquire(entry.listed.size)
        except FileNotFoundError:
            same = False
        else:
            try:
                found = digests(fd, entry.listed.size, entry.chunk_bytes, self._watch.came_on)
            finally:
                entry.body.release()
            same = found == [entry.digests[chunk] for chunk in range(entry.chunk_count)]
        with self._deciding() as now:
            entry.trusted = same
            if not same:
                self._flights.shelf.drop(entry, now=now)
        return same

    def _chunk(self, step: Step) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            return
        with self._deciding() as now:
            if not _counts(step) or not self._flights.rooms.reserve_chunk(transfer, step.chunk, now=now):
                transfer.running.discard(
                    step
                )  # at once: whoever asks for this chunk from now on sees that it is not coming
                return
        self._check_link(transfer)
        offset, length = entry.span(step.chunk)
        fd = entry.body.acquire(entry.listed.size)
        filling = Filling(fd, offset, is_fresh=step.chunk not in entry.touched)
        try:
            if filling.is_fresh and transfer.origin.empty(entry.listed, offset, length):
                digest = digest_of_zeros(length)
            else:
                entry.touched.add(step.chunk)
                self._fill(filling, step, offset, length)
                digest = filling.digest
            is_sure = not transfer.whole or entry.pins > 0
            if is_sure:  # it is given to a reader at once; what is to come whole is confirmed when all is here
                transfer.origin.confirm(entry.listed)
        finally:
            entry.body.release()
            with self._deciding():
                transfer.moved_bytes += filling.length
        with self._deciding() as now:
            transfer.running.discard(step)
            served: list[Reader] = []
            punched = entry.punched
            if _counts(step):
                served = self._flights.arrived(
                    transfer, step.chunk, digest, is_hole=filling.is_hole, is_sure=is_sure, now=now
                )
        for reader in served:
            self.serve(entry, transfer.origin, reader, punched)

    def _fill(self, filling: Filling, step: Step, offset: int, length: int) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            raise StoppedError
        is_told = False
        for piece in transfer.origin.pieces(entry.listed, offset, length):
            if not _counts(step):
                raise StoppedError
            self._watch.heard(transfer.link)
            filling.add(piece)
            if not is_told and entry.pins and 2 * filling.length > length:
                is_told = True
                self._watch.comes_on(step)
        if filling.length != length:
            raise OriginError(f"{transfer.key}: the origin sent another number of bytes than it was asked for")

    def _copy(self, step: Step) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            return
        self._check_link(transfer)
        target = Path(f"{entry.body.path}.copy")
        told = 0

        def go(so_far: int) -> bool:
            nonlocal told
            moved, told = so_far - told, so_far
            transfer.moved_bytes += moved
            if not _counts(step):
                raise StoppedError
            if so_far > entry.listed.size:  # no more is set aside for it
                raise ChangedError(f"{transfer.key}: the origin sends more than it said")
            transfer.copied_bytes = so_far
            return self._watch.goes_on(transfer, moved)

        try:
            transfer.origin.copy(entry.listed, target, go)
            if target.stat().st_size != entry.listed.size:
                raise OriginError(f"{transfer.key}: the origin sent another number of bytes than it said")
            target.replace(entry.body.path)
        finally:
            target.unlink(missing_ok=True)
        if entry.gone:  # the last who wanted it has left meanwhile, and with them its place
            entry.body.remove()
            raise StoppedError
        fd = entry.body.acquire(entry.listed.size)
        try:
            found = digests(fd, entry.listed.size, entry.chunk_bytes, self._watch.came_on)
            taken = os.fstat(fd).st_blocks * 512
        finally:
            entry.body.release()
        with self._deciding() as now:
            transfer.running.discard(step)
            if _counts(step):
                self._flights.copied(transfer, found, taken, now=now)

    def _confirm(self, step: Step) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            return
        chunks = set(entry.doubtful)
        self._check_link(transfer)
        transfer.origin.confirm(entry.listed)
        self._watch.heard(transfer.link)
        with self._deciding() as now:
            transfer.running.discard(step)
            punched = entry.punched
            served = self._flights.confirmed(transfer, chunks, now=now) if _counts(step) else []
        for reader in served:
            self.serve(entry, transfer.origin, reader, punched)

    def _commit(self, step: Step) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            return
        if entry.doubtful or not transfer.is_asked:
            transfer.origin.confirm(entry.listed)
        if entry.listed.checksum:
            fd = entry.body.acquire(entry.listed.size)
            try:
                check_against(entry.listed.checksum, fd, entry.listed.size, str(transfer.key), self._watch.came_on)
            finally:
                entry.body.release()
        with self._deciding() as now:
            transfer.running.discard(step)
            served: list[Reader] = []
            punched = entry.punched
            if _counts(step):
                if not entry.whole:
                    self._disk.keep(entry)
                served = self._flights.committed(transfer, now=now)
        for reader in served:
            self.serve(entry, transfer.origin, reader, punched)

    def serve(self, entry: Entry, origin: Origin, reader: Reader, punched: int) -> None:
        """Give a reader its bytes, which were here when chunks had been taken away `punched` times.

        If some were taken away since, what was read may be a hole: it is read again, or brought once more.
        """
        is_here = True
        while is_here:
            try:
                data = _bytes_of(entry, reader)
            except OSError as error:
                reader.claim.fail(StorageError(f"{entry.key}: {error}"))
                return
            with self._deciding() as now:
                is_kept = entry.punched == punched
                punched = entry.punched
                is_here = entry.has(reader.offset, reader.length)
                if not is_kept and not is_here:
                    self._flights.read(entry, origin, reader, 0, now=now)
                    self._watch.call()  # a reader's thread may have come this far, too
            if is_kept:
                reader.claim.deliver(data)
                return


def _bytes_of(entry: Entry, reader: Reader) -> bytes:
    length = min(reader.length, max(entry.listed.size - reader.offset, 0))
    fd = entry.body.acquire(entry.listed.size)
    try:
        return read(fd, length, reader.offset)
    finally:
        entry.body.release()


def _counts(step: Step) -> bool:
    return step.attempt == step.transfer.attempt
