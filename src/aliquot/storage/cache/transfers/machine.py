"""The transfer machine: takes the events of callers and workers, and answers with steps and decisions.

A transfer goes through these states:

    ASKING ──version_known──▶ MOVING ──last chunk──▶ COMPLETE ──committed──▶ ended
       ▲                         │                      │
       └── the file changed ─────┴──────────────────────┘

Events of callers: `request`, `read`, `cancel`, `promote`, `handle_closed`. Events of workers: `version_known`,
`chunk_arrived`, `copied`, `confirmed`, `committed`, `step_failed`, `disk_full`, `step_silent`, and always `step_ended`.
A step of an earlier attempt changes nothing any more.
"""

from msgspec.structs import replace

from aliquot.storage.cache.records import CacheSettings, CacheStats, DatasetStats, Urgency
from aliquot.storage.cache.transfers.decisions import Decision, FailRequest, FreeChunk, HandOver, ServeRead
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.failures import StepFailures
from aliquot.storage.cache.transfers.progress import TransferProgress
from aliquot.storage.cache.transfers.reservations import READ_AHEAD_CHUNKS, SpaceReservations
from aliquot.storage.cache.transfers.schedule import PrefetchBudget, StepSchedule
from aliquot.storage.cache.transfers.space import CacheSpace
from aliquot.storage.cache.transfers.table import TransferTable
from aliquot.storage.cache.transfers.transfer import (
    FileRequest,
    ReadRequest,
    Transfer,
    TransferOrigin,
    TransferState,
    TransferStep,
)
from aliquot.storage.errors import AbsentError, CacheRefusedError, ChangedError
from aliquot.storage.records import FileKey, Listed


class TransferMachine:
    """The state of all cached files and transfers. The caller holds the cache's lock and passes the time."""

    def __init__(self, settings: CacheSettings, *, now: float) -> None:
        self.settings = settings
        self.space = CacheSpace(settings.limit_bytes, settings.eviction)
        self._table = TransferTable(self.space, settings.workers)
        self._reservations = SpaceReservations(self.space, self._table)
        self._progress = TransferProgress(settings.whole_bytes, self.space, self._table, self._reservations)
        self._failures = StepFailures(self.space, self._table, self._reservations, self._progress)
        self._schedule = StepSchedule(settings.workers, PrefetchBudget(settings.prefetch_bytes_per_s, now=now))

    @property
    def transfers(self) -> dict[FileKey, Transfer]:
        return self._table.by_key

    def take_decisions(self) -> list[Decision]:
        """Return the decisions made since the last call, in the order in which to perform them."""
        return self._table.take_decisions()

    # --- callers ------------------------------------------------------------------------------------------

    def request(self, request: FileRequest, *, now: float) -> None:
        """Give a caller the file if it is cached and fresh. Otherwise join or start its transfer."""
        done = self.open_cached(request, now=now)
        if done is not None:
            self._table.decisions.append(done)
            return
        transfer = self._table.start(request.key, request.origin, now=now)
        transfer.waiting.append(request)
        request.follow(lambda: transfer.moved_bytes)
        if transfer.state is TransferState.MOVING:
            self._progress.advance(transfer, now=now)

    def open_cached(self, request: FileRequest, *, now: float) -> HandOver | None:
        """Give a caller the file if it is cached and need not be checked with its origin. Return None otherwise."""
        entry = self.space.entries.get(request.key)
        if entry is None or request.key in self.transfers or not self._is_fresh(entry, request.origin, now=now):
            return None
        return self._progress.hand_over(request, entry, was_fetched=False, now=now)

    def _is_fresh(self, entry: CacheEntry, origin: TransferOrigin, *, now: float) -> bool:
        if not (entry.whole and entry.trusted and entry.origin == origin.identity):
            return False
        if now - entry.checked_s <= self.settings.revalidate_s:
            return True
        is_silent = self._failures.is_silent(origin.link, now=now)
        self.space.stats_of(entry.key.dataset).unchecked += is_silent
        return is_silent

    def handed_over(self, done: HandOver, *, now: float) -> None:
        self._progress.handed_over(done, now=now)

    def file_lost(self, lost: HandOver, *, now: float) -> None:
        """Drop an entry whose file has disappeared. The caller may `request` it again."""
        self._progress.file_lost(lost, now=now)

    def read(self, entry: CacheEntry, read: ReadRequest, *, is_sequential: bool, now: float) -> None:
        """Serve a part of an open file, or fetch its chunks, and for a sequential reader some chunks after it."""
        if entry.has(read.offset, read.length):
            self._table.decisions.append(ServeRead(read, entry, entry.freed_count))
            return
        running = self.transfers.get(entry.key)
        if entry.dropped or (running is not None and running.origin.identity != entry.origin):
            error = ChangedError(f"{entry.key}: has changed, or was removed, since it was opened")
            self._table.decisions.append(FailRequest(read, error))
            return
        transfer = self._table.start(entry.key, read.origin, now=now)
        if transfer.entry is None:
            self._table.use(transfer, entry)
        transfer.readers.append(read)
        chunks = entry.chunks_of(read.offset, read.length)
        ahead = READ_AHEAD_CHUNKS if is_sequential else 0
        for chunk in range(chunks.stop, min(chunks.stop + ahead, entry.chunk_count)):
            transfer.want(chunk)
        for chunk in reversed(chunks):
            transfer.want(chunk, first=True)

    def cancel(self, request: FileRequest | ReadRequest, *, now: float) -> None:
        """Remove a request. Its transfer ends if it has no others."""
        transfer = self.transfers.get(request.key)
        if transfer is None:
            return
        transfer.waiting = [other for other in transfer.waiting if other is not request]
        transfer.readers = [other for other in transfer.readers if other is not request]
        self._table.end_if_unwanted(transfer, now=now)

    def promote(self, request: FileRequest, urgency: Urgency) -> None:
        request.urgency = min(request.urgency, urgency)

    def handle_closed(self, entry: CacheEntry, *, now: float) -> None:
        """Unpin an entry. Without other handles, its read-ahead stops."""
        self._progress.unpin(entry, now=now)
        transfer = self.transfers.get(entry.key)
        if transfer is not None and transfer.entry is entry and not entry.pins and not transfer.is_reserved:
            transfer.wanted.clear()
            self._table.end_if_unwanted(transfer, now=now)

    # --- workers ------------------------------------------------------------------------------------------

    def next_step(self, *, now: float) -> TransferStep | None:
        """Choose the next step and begin it."""
        step = self._schedule.next_step(self.transfers.values(), now=now)
        if step is not None:
            step.transfer.begin(step)
        return step

    def has_more(self, *, now: float) -> bool:
        """Return whether there is a step for another worker, now or after some time."""
        return self._schedule.peek(self.transfers.values(), now=now) is not None or self.wake_s is not None

    @property
    def wake_s(self) -> float | None:
        """Return when to ask for a step again although nothing has happened."""
        return self._schedule.wake_s

    def usable_entry(self, transfer: Transfer, listed: Listed, *, ranged: bool) -> CacheEntry | None:
        """Return the entry of this version, which the transfer can fill or give out. None: it needs a new one."""
        entry = self.space.entries.get(transfer.key)
        if entry is None or not entry.is_version(listed, transfer.origin.identity):
            return None
        if not ranged and not entry.whole and (entry.pins or entry.digests):
            return None  # a copy would replace the file under readers of its parts
        return entry

    def version_known(self, step: TransferStep, entry: CacheEntry, *, is_asked: bool, ranged: bool, now: float) -> None:
        """Continue with the entry of the version to fetch: that of `usable_entry`, or a new one.

        `is_asked` says that the origin itself named the version. Otherwise it comes from the listing.
        """
        transfer = step.transfer
        transfer.running.discard(step)
        known = self.space.entries.get(transfer.key)
        if known is not None and known is not entry:
            is_changed = not known.is_version(entry.listed, transfer.origin.identity)
            self.space.stats_of(transfer.key.dataset).refetched += is_changed
            self.space.drop(known, now=now)
        if transfer.entry is not None and transfer.entry is not entry:
            self._leave_behind(transfer, transfer.entry, now=now)
        if known is not entry:
            entry.predicted = transfer.is_for_prediction
            self.space.add(entry, now=now)
        transfer.is_asked = is_asked
        if is_asked:
            entry.checked_s = now
        transfer.ranged = ranged
        transfer.was_fetched = not entry.whole
        self._table.use(transfer, entry)
        self._progress.advance(transfer, now=now)

    def _leave_behind(self, transfer: Transfer, old: CacheEntry, *, now: float) -> None:
        """Fail the reads of an old version that arrived during the lookup of the current one."""
        error = ChangedError(f"{transfer.key}: changed at its origin while it was read")
        self._table.fail_reads(transfer, error)
        transfer.restart()
        self.space.release_all(old)
        self.space.end(old, now=now)

    def reserve_chunk(self, step: TransferStep, *, can_free: bool, now: float) -> bool | FreeChunk:
        """Reserve space for the step's chunk. False: it is not to be fetched. See `SpaceReservations`."""
        answer = self._reservations.reserve_chunk(step, can_free=can_free, now=now) if step.is_current else False
        if answer is False:
            step.transfer.running.discard(step)  # so that a new read wants the chunk again
        return answer

    def chunk_freed(self, free: FreeChunk) -> None:
        self._reservations.chunk_freed(free)

    def chunk_begun(self, entry: CacheEntry, chunk: int) -> None:
        """Note that bytes of a chunk are being written, which a failure may leave behind."""
        entry.written.add(chunk)

    def half_arrived(self, step: TransferStep) -> None:
        step.transfer.half_arrived(step)

    def chunk_moved(self, step: TransferStep, moved_bytes: int) -> None:
        """Count the bytes that came over the link for a chunk, whether or not it arrived."""
        step.transfer.moved_bytes += moved_bytes

    def chunk_arrived(
        self, step: TransferStep, digest: bytes, *, is_hole: bool, is_confirmed: bool, now: float
    ) -> None:
        """Count a chunk that is on disk. Readers get it once it is confirmed to be of the entry's version."""
        transfer, entry, chunk = step.transfer, step.transfer.entry, step.chunk
        transfer.running.discard(step)
        if not step.is_current or entry is None or chunk in entry.digests:
            return
        transfer.failures = 0
        entry.digests[chunk] = digest
        length = entry.span(chunk)[1]
        if is_hole:
            entry.holes.add(chunk)
        if not is_confirmed:
            entry.unconfirmed.add(chunk)
        self.space.arrived(entry, length, is_hole=is_hole)
        self._count_fetched(transfer, length)
        transfer.count_chunk(length, now=now)
        self._table.serve_reads(transfer, entry)
        if entry.complete and not entry.whole and transfer.state is TransferState.MOVING:
            transfer.state = TransferState.COMPLETE
        self._progress.advance(transfer, now=now)

    def copy_moved(self, step: TransferStep, copied_bytes: int, moved_bytes: int, *, now: float) -> bool:
        """Count the progress of a copy. Return whether it may continue, or pauses for more urgent transfers."""
        transfer = step.transfer
        transfer.moved_bytes += moved_bytes
        if step.is_current:
            transfer.copied_bytes = copied_bytes
        return self._schedule.may_continue_copy(transfer, self.transfers.values(), moved_bytes, now=now)

    def copied(self, step: TransferStep, digests: list[bytes], disk_bytes: int, *, now: float) -> None:
        """Count a file that arrived as a whole."""
        transfer, entry = step.transfer, step.transfer.entry
        transfer.running.discard(step)
        if not step.is_current or entry is None:
            return
        entry.digests = dict(enumerate(digests))
        entry.unconfirmed = set(entry.digests)
        self._count_fetched(transfer, entry.listed.size)
        self.space.replaced(entry, min(disk_bytes, entry.listed.size))
        transfer.wanted.clear()
        self._progress.advance(transfer, now=now)

    def confirmed(self, step: TransferStep, chunks: set[int], *, now: float) -> None:
        """Let readers have these chunks, whose version the origin has confirmed."""
        transfer, entry = step.transfer, step.transfer.entry
        transfer.running.discard(step)
        if not step.is_current or entry is None:
            return
        entry.unconfirmed -= chunks
        self._table.serve_reads(transfer, entry)
        self._progress.advance(transfer, now=now)

    def committed(self, step: TransferStep, *, now: float) -> None:
        """Give out a file that is whole, verified and in its place."""
        transfer, entry = step.transfer, step.transfer.entry
        transfer.running.discard(step)
        if not step.is_current or entry is None:
            return
        entry.whole = True
        entry.unconfirmed.clear()
        entry.reload_s = now - transfer.started_s
        entry.checked_s = now
        self.space.release_all(entry)
        transfer.state = TransferState.MOVING
        self._table.serve_reads(transfer, entry)
        self._progress.advance(transfer, now=now)

    def _count_fetched(self, transfer: Transfer, length: int) -> None:
        stats = self.space.stats_of(transfer.key.dataset)
        stats.fetched_bytes += length
        if transfer.is_for_prediction:
            stats.prefetched_bytes += length

    def step_failed(self, step: TransferStep, error: Exception, *, now: float) -> None:
        """Decide what follows from an error. A full disk is reported by `disk_full` instead."""
        step.transfer.running.discard(step)
        if step.is_current:
            self._failures.handle(step, error, now=now)

    def disk_full(self, step: TransferStep, error: OSError, *, can_free: bool, now: float) -> FreeChunk | None:
        """Make space and retry, or fail. Return a chunk that the worker frees before it calls `retry`."""
        step.transfer.running.discard(step)
        if not step.is_current:
            return None
        return self._failures.disk_full(step, error, can_free=can_free, now=now)

    def retry(self, step: TransferStep, *, now: float) -> None:
        self._failures.retry_now(step, now=now)

    def step_silent(self, step: TransferStep, silent_s: float, *, now: float) -> bool:
        """Decide whether to abandon a worker whose origin has sent nothing for so long. Its requests are answered."""
        settings = self.settings
        return self._failures.step_silent(
            step, silent_s, patience_s=settings.patience_s, stall_s=settings.stall_s, now=now
        )

    def step_ended(self, step: TransferStep, *, now: float) -> None:
        """Note that the worker has finished a step, successfully or not."""
        step.transfer.running.discard(step)
        if step.is_current:
            self._table.end_if_unwanted(step.transfer, now=now)

    def file_checked(self, entry: CacheEntry, *, is_intact: bool, now: float) -> None:
        """Trust a whole file that was compared with its digests, or drop it."""
        entry.trusted = is_intact
        if not is_intact:
            self.space.drop(entry, now=now)

    # --- whole cache --------------------------------------------------------------------------------------

    def remove_dataset(self, dataset: str, *, now: float) -> None:
        """Drop all files of a dataset, and fail its transfers."""
        for transfer in [each for each in self.transfers.values() if each.key.dataset == dataset]:
            self._table.fail(transfer, AbsentError(f"{transfer.key}: the dataset was removed"), now=now)
        for entry in [each for each in self.space.entries.values() if each.key.dataset == dataset]:
            self.space.drop(entry, now=now)
        self.space.stats.pop(dataset, None)

    def drop_unused(self, dataset: str | None, *, now: float) -> int:
        """Drop the entries that no handle or transfer uses, and return their bytes. A dataset of None is all."""
        unused = [entry for entry in self.space.entries.values() if not entry.pins and not entry.busy]
        chosen = [entry for entry in unused if dataset in {None, entry.key.dataset}]
        freed_bytes = sum(entry.disk_bytes for entry in chosen)
        for entry in chosen:
            self.space.drop(entry, now=now)
        return freed_bytes

    def drop_partial(self, *, now: float) -> None:
        for entry in [each for each in self.space.entries.values() if not each.whole]:
            self.space.drop(entry, now=now)

    def fail_all(self, *, now: float) -> None:
        """Fail all transfers because the cache closes."""
        for transfer in list(self.transfers.values()):
            self._table.fail(transfer, CacheRefusedError(f"{transfer.key}: the cache is closed"), now=now)

    def stats(self) -> CacheStats:
        """Return the current counters, with copies of those of the datasets."""
        datasets = {name: replace(stats) for name, stats in self.space.stats.items()}
        for key, entry in self.space.entries.items():
            stats = datasets.setdefault(key.dataset, DatasetStats())
            stats.files += entry.whole
            stats.bytes += entry.disk_bytes
        for key in self.transfers:
            datasets.setdefault(key.dataset, DatasetStats()).in_flight += 1
        space, open_handles = self.space, self._progress.open_handles
        return CacheStats(space.limit_bytes, space.used_bytes, open_handles, len(self.transfers), datasets)
