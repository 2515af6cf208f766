"""The work of a worker, one step at a time: ask an origin, fetch a chunk, copy a file, commit a whole one."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from aliquot.storage.cache.disk.directory import CacheDirectory
from aliquot.storage.cache.disk.files import ChunkWriter, check_checksum, chunk_digests, digest_of_zeros, file_of
from aliquot.storage.cache.listings.known import KnownListings
from aliquot.storage.cache.transfers.decisions import FreeChunk
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.failures import DISK_FULL
from aliquot.storage.cache.transfers.machine import TransferMachine
from aliquot.storage.cache.transfers.transfer import StepKind, Transfer, TransferStep
from aliquot.storage.cache.workers.progress import WorkerProgress
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError, RoomError, StorageError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import Listed


class StepStoppedError(Exception):
    """The step's transfer has been restarted or has ended."""


class Decide(Protocol):
    """Takes the cache's lock and gives the time. On exit, the machine's decisions are performed."""

    def __call__(self, *, wakes_workers: bool = False) -> AbstractContextManager[float]: ...


class StepRunner:
    """Performs steps and reports their outcome to the machine."""

    def __init__(
        self,
        machine: TransferMachine,
        directory: CacheDirectory,
        listings: KnownListings,
        decide: Decide,
        progress: WorkerProgress,
    ) -> None:
        self._machine = machine
        self._directory = directory
        self._listings = listings
        self._decide = decide
        self._progress = progress
        self._kinds = {
            StepKind.ASK: self._ask,
            StepKind.CHUNK: self._fetch_chunk,
            StepKind.COPY: self._copy,
            StepKind.CONFIRM: self._confirm,
            StepKind.COMMIT: self._commit,
        }

    def perform(self, step: TransferStep) -> None:
        """Perform a step. Every error is reported to the machine, which fails the waiting requests."""
        try:
            self._kinds[step.kind](step)
        except StepStoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - see above
            self._report(step, error)
        finally:
            with self._decide() as now:
                self._machine.step_ended(step, now=now)

    def is_overdue(self, step: TransferStep, silent_s: float) -> bool:
        """Return whether to abandon the worker of a step whose origin has been silent for so long."""
        with self._decide(wakes_workers=True) as now:
            return self._machine.step_silent(step, silent_s, now=now)

    def check_file(self, entry: CacheEntry) -> bool:
        """Read a whole file and compare it with its digests. A file that differs is dropped."""
        file = file_of(entry)
        try:
            fd = file.acquire(entry.listed.size)
        except FileNotFoundError:
            is_intact = False
        else:
            try:
                digests = chunk_digests(fd, entry.listed.size, entry.chunk_bytes, self._progress.worked)
            finally:
                file.release()
            is_intact = digests == [entry.digests[chunk] for chunk in range(entry.chunk_count)]
        with self._decide() as now:
            self._machine.file_checked(entry, is_intact=is_intact, now=now)
        return is_intact

    # --- the kinds of steps -------------------------------------------------------------------------------

    def _ask(self, step: TransferStep) -> None:
        transfer, origin = step.transfer, _origin_of(step.transfer)
        with self._decide():
            entry = self._machine.space.entries.get(transfer.key)
        # Before the request to the origin, so that a checked file can be served if the origin does not answer.
        if entry is not None and entry.whole and not entry.trusted and not self.check_file(entry):
            entry = None
        # A file that is not here is fetched as the version in the listing. A wrong version shows during the transfer.
        listed = self._expected(transfer, origin) if entry is None else None
        is_asked = listed is None
        if listed is None:
            self._check_link(transfer)
            listed = self._listings.ask(transfer.key, origin)
            self._progress.received(transfer.link)
        ranged = origin.ranged(listed)
        with self._decide() as now:
            if not step.is_current:
                return
            entry = self._machine.usable_entry(transfer, listed, ranged=ranged)
            if entry is None:
                chunk_bytes = self._machine.settings.chunk_bytes
                entry = self._directory.create_entry(transfer.key, listed, origin.identity, chunk_bytes)
            self._machine.version_known(step, entry, is_asked=is_asked, ranged=ranged, now=now)

    def _expected(self, transfer: Transfer, origin: Origin) -> Listed | None:
        """Return the listed version of a small file. A large one opens before a byte arrives, so its origin decides."""
        if transfer.must_ask:
            return None
        expected = self._listings.expected(transfer.key, origin)
        return None if expected is None or expected.size > self._machine.settings.whole_bytes else expected

    def _fetch_chunk(self, step: TransferStep) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None or not self._reserve(step):
            return
        self._check_link(transfer)
        origin, file = _origin_of(transfer), file_of(entry)
        offset, length = entry.span(step.chunk)
        writer = ChunkWriter(file.acquire(entry.listed.size), offset, is_fresh=step.chunk not in entry.written)
        try:
            if writer.is_fresh and origin.empty(entry.listed, offset, length):
                digest = digest_of_zeros(length)
            else:
                with self._decide():
                    self._machine.chunk_begun(entry, step.chunk)
                self._fill(writer, step, entry, origin)
                digest = writer.digest
            # Readers get the chunk at once if they have the file open. Otherwise it is confirmed when all is here.
            is_confirmed = not transfer.is_reserved or entry.pins > 0
            if is_confirmed:
                origin.confirm(entry.listed)
        finally:
            file.release()
            with self._decide():
                self._machine.chunk_moved(step, writer.length)
        with self._decide() as now:
            self._machine.chunk_arrived(step, digest, is_hole=writer.is_hole, is_confirmed=is_confirmed, now=now)

    def _fill(self, writer: ChunkWriter, step: TransferStep, entry: CacheEntry, origin: Origin) -> None:
        offset, length = entry.span(step.chunk)
        is_half_reported = False
        for piece in origin.pieces(entry.listed, offset, length):
            if not step.is_current:
                raise StepStoppedError
            self._progress.received(step.transfer.link)
            writer.add(piece)
            if not is_half_reported and entry.pins and 2 * writer.length > length:
                is_half_reported = True
                with self._decide(wakes_workers=True):
                    self._machine.half_arrived(step)
        if writer.length != length:
            raise OriginError(f"{entry.key}: the origin sent another number of bytes than requested")

    def _copy(self, step: TransferStep) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            return
        self._check_link(transfer)
        file = file_of(entry)
        target = Path(f"{file.path}.copy")
        reported_bytes = 0

        def may_continue(copied_bytes: int) -> bool:
            nonlocal reported_bytes
            moved_bytes, reported_bytes = copied_bytes - reported_bytes, copied_bytes
            return self._copy_moved(step, entry, copied_bytes, moved_bytes)

        try:
            _origin_of(transfer).copy(entry.listed, target, may_continue)
            if target.stat().st_size != entry.listed.size:
                raise OriginError(f"{transfer.key}: the origin sent another number of bytes than it announced")
            target.replace(file.path)
        finally:
            target.unlink(missing_ok=True)
        if entry.dropped:  # its last request was cancelled, and its file removed before the copy replaced it
            file.remove()
            raise StepStoppedError
        fd = file.acquire(entry.listed.size)
        try:
            digests = chunk_digests(fd, entry.listed.size, entry.chunk_bytes, self._progress.worked)
            disk_bytes = os.fstat(fd).st_blocks * 512
        finally:
            file.release()
        with self._decide() as now:
            self._machine.copied(step, digests, disk_bytes, now=now)

    def _copy_moved(self, step: TransferStep, entry: CacheEntry, copied_bytes: int, moved_bytes: int) -> bool:
        with self._decide() as now:
            may_continue = self._machine.copy_moved(step, copied_bytes, moved_bytes, now=now)
        if not step.is_current:
            raise StepStoppedError
        if copied_bytes > entry.listed.size:  # no more space is reserved for it
            raise ChangedError(f"{entry.key}: the origin sends more bytes than it announced")
        if moved_bytes:
            self._progress.received(step.transfer.link)
        elif not may_continue:  # a paused copy receives nothing, which is not its origin's fault
            self._progress.worked()
        return may_continue

    def _confirm(self, step: TransferStep) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            return
        chunks = set(entry.unconfirmed)
        self._check_link(transfer)
        _origin_of(transfer).confirm(entry.listed)
        self._progress.received(transfer.link)
        with self._decide() as now:
            self._machine.confirmed(step, chunks, now=now)

    def _commit(self, step: TransferStep) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if entry is None:
            return
        if entry.unconfirmed or not transfer.is_asked:
            _origin_of(transfer).confirm(entry.listed)
        if entry.listed.checksum:
            file = file_of(entry)
            fd = file.acquire(entry.listed.size)
            try:
                name = str(transfer.key)
                check_checksum(entry.listed.checksum, fd, entry.listed.size, name, self._progress.worked)
            finally:
                file.release()
        with self._decide() as now:
            if step.is_current:
                if not entry.whole:
                    self._directory.commit(entry)
                self._machine.committed(step, now=now)
                self._directory.compact_index(self._machine.space.entries.values())

    # --- space and errors ---------------------------------------------------------------------------------

    def _reserve(self, step: TransferStep) -> bool:
        can_free = True
        with self._decide() as now:
            while isinstance(answer := self._machine.reserve_chunk(step, can_free=can_free, now=now), FreeChunk):
                can_free = self._free(answer)
        return answer

    def _free(self, free: FreeChunk) -> bool:
        """Free a chunk's blocks on disk. The lock is held."""
        is_freed = file_of(free.entry).punch(*free.entry.span(free.chunk))
        if is_freed:
            self._machine.chunk_freed(free)
        return is_freed

    def _check_link(self, transfer: Transfer) -> None:
        """Raise `OriginError` if too many workers hang on the link already."""
        with self._decide() as now:
            is_hung = self._progress.is_hung(transfer.link, self._machine.settings.stall_s, now=now)
        if is_hung:
            raise OriginError(f"{transfer.key}: its origin has left too many earlier requests unanswered")

    def _report(self, step: TransferStep, error: Exception) -> None:
        with self._decide() as now:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                self._report_full_disk(step, error, now)
                return
            if step.is_current and _disproves_listing(step, error):
                self._listings.disprove(step.transfer.key)
            self._machine.step_failed(step, error, now=now)

    def _report_full_disk(self, step: TransferStep, error: OSError, now: float) -> None:
        free = self._machine.disk_full(step, error, can_free=True, now=now)
        if free is None:
            return
        if self._free(free):
            self._machine.retry(step, now=now)
        else:
            self._machine.disk_full(step, error, can_free=False, now=now)


def _disproves_listing(step: TransferStep, error: Exception) -> bool:
    """Return whether the error shows that the origin has another version than was expected."""
    if isinstance(error, AbsentError | PathError | RoomError):
        return False
    return isinstance(error, ChangedError) or (isinstance(error, StorageError) and step.kind is StepKind.COMMIT)


def _origin_of(transfer: Transfer) -> Origin:
    """Return the origin that the transfer's request came with."""
    origin = transfer.origin
    if not isinstance(origin, Origin):
        raise TypeError(f"{transfer.key}: its transfer has no origin, but {origin!r}")
    return origin
