"""The consequences of a failed step: retry, begin again, make space, or fail the transfer."""

import errno

from aliquot.storage.cache.transfers.decisions import FreeChunk
from aliquot.storage.cache.transfers.progress import TransferProgress
from aliquot.storage.cache.transfers.reservations import SpaceReservations
from aliquot.storage.cache.transfers.space import CacheSpace
from aliquot.storage.cache.transfers.table import TransferTable
from aliquot.storage.cache.transfers.transfer import StepKind, Transfer, TransferStep
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError, RoomError, StorageError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
MAX_FAILURES = 3  # in a row, before the requests fail
RETRY_S = (0.1, 0.4, 1.0)
MAX_CHANGES = 3  # of a file at its origin during one transfer
SILENT_LINK_S = 10.0  # for this long, cached files of a silent origin are served without asking it


class StepFailures:
    """Decides what follows from errors and from silence of origins."""

    def __init__(
        self, space: CacheSpace, table: TransferTable, reservations: SpaceReservations, progress: TransferProgress
    ) -> None:
        self._space = space
        self._table = table
        self._reservations = reservations
        self._progress = progress
        self._silent_until_s: dict[str, float] = {}  # by link

    def handle(self, step: TransferStep, error: Exception, *, now: float) -> None:
        """Decide what follows from any error but a full disk, for which see `disk_full`."""
        transfer = step.transfer
        match error:
            case ChangedError():
                self._changed(transfer, now=now)
            case AbsentError():
                self._absent(transfer, error, now=now)
            case PathError() | RoomError():
                self._table.fail(transfer, error, now=now)
            case StorageError() if step.kind is StepKind.COMMIT:  # the file has not the origin's checksum
                self._spoiled(transfer, error, now=now)
            case StorageError():
                if not (step.kind is StepKind.ASK and self.serve_unchecked(transfer, now=now)):
                    self._retry_later(step, error, now=now)
            case OSError() if error.errno == errno.ENOENT:  # the cache's directory was deleted
                self._spoiled(transfer, StorageError(f"{transfer.key}: the cache's directory: {error}"), now=now)
            case _:
                unexpected = StorageError(f"{transfer.key}: {type(error).__name__}: {error}")
                unexpected.__cause__ = error
                self._table.fail(transfer, unexpected, now=now)

    def disk_full(self, step: TransferStep, error: OSError, *, can_free: bool, now: float) -> FreeChunk | None:
        """Make space and try the step again, or fail the transfer if nothing can be removed.

        The disk may be full of other files, long before the cache's limit is reached. If a chunk is returned, the
        worker frees it and then reports `retry_now`, or asks again with `can_free` false if it could not.
        """
        made = self._reservations.make_room_on_disk(step, can_free=can_free, now=now)
        if isinstance(made, FreeChunk):
            return made
        if made:
            self.retry_now(step, now=now)
        else:
            transfer = step.transfer
            text = (
                f"{transfer.key}: the cache's disk is full, and nothing in the cache can be evicted: {error.strerror}"
            )
            self._table.fail(transfer, RoomError(text), now=now)
        return None

    def retry_now(self, step: TransferStep, *, now: float) -> None:
        step.transfer.not_before_s = now
        self._want_again(step)

    def step_silent(
        self, step: TransferStep, silent_s: float, *, patience_s: float, stall_s: float, now: float
    ) -> bool:
        """Decide whether to abandon the worker of a step whose origin has sent nothing for a while.

        A cached file is served unchecked after `patience_s`. After `stall_s` the transfer fails.
        """
        transfer = step.transfer
        if not step.is_current:
            return silent_s > stall_s
        if step.kind is StepKind.ASK and silent_s > patience_s:
            self._silent_until_s[transfer.link] = now + SILENT_LINK_S
            if self.serve_unchecked(transfer, now=now):
                return True
        if silent_s < stall_s:
            return False
        transfer.attempt += 1  # the worker may never come back, so nothing may wait for it
        error = OriginError(f"{transfer.key}: its origin has sent nothing for {stall_s:g} s")
        self._table.fail(transfer, error, now=now)
        return True

    def is_silent(self, link: str, *, now: float) -> bool:
        """Return whether the link did not answer lately, so that cached files are served without asking it."""
        return now < self._silent_until_s.get(link, 0.0)

    def serve_unchecked(self, transfer: Transfer, *, now: float) -> bool:
        """Serve the cached file because its origin does not answer. Return False if it is not cached."""
        entry = self._space.entries.get(transfer.key)
        if entry is None or not (entry.whole and entry.trusted) or entry.origin != transfer.origin.identity:
            return False
        self._space.stats_of(transfer.key.dataset).unchecked += 1
        transfer.attempt += 1  # a late answer no longer counts
        self._table.use(transfer, entry)
        self._progress.advance(transfer, now=now)
        return True

    def _changed(self, transfer: Transfer, *, now: float) -> None:
        """Begin again with the origin's new version, a few times at most."""
        transfer.changes += 1
        error = ChangedError(f"{transfer.key}: changed at its origin while it was read")
        self._table.fail_reads(transfer, error)
        self._table.restart(transfer, now=now)
        if transfer.changes > MAX_CHANGES:
            text = f"{transfer.key}: changed {transfer.changes} times during its transfer; try again later"
            self._table.fail(transfer, ChangedError(text), now=now)

    def _absent(self, transfer: Transfer, error: Exception, *, now: float) -> None:
        entry = self._space.entries.get(transfer.key)
        if entry is not None and entry is not transfer.entry:
            self._space.drop(entry, now=now)
        self._table.fail(transfer, error, now=now)

    def _spoiled(self, transfer: Transfer, error: StorageError, *, now: float) -> None:
        """Begin again once. The second time, fail."""
        transfer.spoiled += 1
        self._table.restart(transfer, now=now)
        if transfer.spoiled > 1:
            self._table.fail(transfer, error, now=now)

    def _retry_later(self, step: TransferStep, error: StorageError, *, now: float) -> None:
        transfer = step.transfer
        transfer.failures += 1
        if transfer.failures > MAX_FAILURES:
            self._table.fail(transfer, error, now=now)
            return
        transfer.not_before_s = now + RETRY_S[transfer.failures - 1]
        self._want_again(step)

    def _want_again(self, step: TransferStep) -> None:
        transfer, entry = step.transfer, step.transfer.entry
        if step.chunk < 0:
            return
        if entry is not None and not transfer.is_reserved:
            self._space.release(entry, entry.span(step.chunk)[1])
        transfer.want(step.chunk, first=True)
