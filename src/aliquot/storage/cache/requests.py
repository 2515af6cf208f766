"""Handle callers' requests under the cache's one lock: return futures and handles, and perform decisions.

All state of the cache changes within `decide`, which holds the lock. The machine's decisions are performed when it
ends. Only `HandOver` is performed under the lock, because the machine must know whether the file could be opened.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from aliquot.storage.cache.base import FileHandle
from aliquot.storage.cache.disk.directory import CacheDirectory
from aliquot.storage.cache.disk.files import file_of, read_entry
from aliquot.storage.cache.futures import TransferFuture, refused
from aliquot.storage.cache.handles import CacheFileHandle
from aliquot.storage.cache.listings.known import KnownListings
from aliquot.storage.cache.records import CacheSettings, FetchResult, Urgency
from aliquot.storage.cache.transfers.decisions import FailRequest, HandOver, RemoveFile, ServeRead
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.machine import TransferMachine
from aliquot.storage.cache.transfers.transfer import FileRequest, ReadRequest
from aliquot.storage.cache.workers.pool import TransferWorkers
from aliquot.storage.cache.workers.progress import WorkerProgress
from aliquot.storage.cache.workers.steps import StepRunner
from aliquot.storage.errors import CacheRefusedError, StorageError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import FileKey


class CacheRequests:
    """Connects callers, the transfer machine, the workers and the disk."""

    def __init__(self, directory: Path, settings: CacheSettings) -> None:
        self.closed = False
        self.lock = threading.Lock()
        self.machine = TransferMachine(settings, now=time.monotonic())
        self.directory = CacheDirectory(directory)
        self.listings = KnownListings(
            directory / "listings", settings.revalidate_s, settings.relist_s, settings.stall_s
        )
        self.progress = WorkerProgress()
        self.runner = StepRunner(self.machine, self.directory, self.listings, self.decide, self.progress)
        self.workers = TransferWorkers(self.lock, self.machine, self.runner, self.progress)
        self._futures: dict[FileRequest | ReadRequest, TransferFuture[Any]] = {}
        # Entries of closed handles, counted at the next decision. The garbage collector closes handles, too, and must
        # not wait for the lock.
        self._given_back: deque[CacheEntry] = deque()
        with self.decide() as now:
            for entry in self.directory.recover():
                self.machine.space.add(entry, now=now)
            self.machine.space.make_room(0, now=now)  # the limit may be lower than before

    @contextmanager
    def decide(self, *, wakes_workers: bool = False) -> Iterator[float]:
        """Hold the lock, yield the current time, and perform the decisions made meanwhile.

        A worker need not wake workers, because it looks for its next step itself.
        """
        after: list[Callable[[], object]] = []
        try:
            with self.lock:
                now = time.monotonic()
                self._count_given_back(now)
                try:
                    yield now
                finally:
                    after = self._perform_decisions(now)
                    if wakes_workers and self.machine.transfers:
                        self.workers.wake()
        finally:
            for perform in after:
                perform()

    def _perform_decisions(self, now: float) -> list[Callable[[], object]]:
        """Hand over files. Return the actions to perform without the lock: removals first, then the others in order."""
        removals: list[Callable[[], object]] = []
        others: list[Callable[[], object]] = []
        while decisions := self.machine.take_decisions():
            for decision in decisions:
                match decision:
                    case RemoveFile(entry):
                        removals.append(partial(_remove_file, entry))
                    case FailRequest(request, error):
                        others.append(partial(self._futures.pop(request).fail, error))
                    case ServeRead(request, entry, freed_count):
                        others.append(partial(self._serve_read, request, entry, freed_count))
                    case HandOver():
                        others += self._hand_over(decision, now)
        return removals + others

    def close(self) -> bool:
        """Fail all requests, and refuse those to come. Return False if that was done before."""
        with self.decide() as now:
            is_first, self.closed = not self.closed, True
            if is_first:
                self.machine.fail_all(now=now)
        return is_first

    # --- files --------------------------------------------------------------------------------------------

    def try_open(self, key: FileKey, origin: Origin) -> CacheFileHandle | None:
        """Open a file that is cached and fresh, or return None."""
        request = FileRequest(key, origin, Urgency.DEMAND, opens=True, now=time.monotonic())
        with self.decide(wakes_workers=True) as now:
            opened = None if self.closed else self.machine.open_cached(request, now=now)
            return None if opened is None else self._open(opened, now)

    def open(self, key: FileKey, origin: Origin) -> TransferFuture[FileHandle]:
        return self._request(FileRequest(key, origin, Urgency.DEMAND, opens=True, now=time.monotonic()))

    def fetch(self, key: FileKey, origin: Origin, urgency: Urgency) -> TransferFuture[FetchResult]:
        return self._request(FileRequest(key, origin, urgency, opens=False, now=time.monotonic()))

    def _request(self, request: FileRequest) -> TransferFuture[Any]:
        future: TransferFuture[Any] = TransferFuture(
            cancelled=partial(self._cancel, request),
            promoted=partial(self._promote, request),
            moved_bytes=lambda: request.moved_bytes,
        )
        with self.decide(wakes_workers=True) as now:
            if self.closed:
                return refused(CacheRefusedError("the cache is closed"))
            self._futures[request] = future
            self.machine.request(request, now=now)
        return future

    def _cancel(self, request: FileRequest | ReadRequest) -> None:
        with self.decide(wakes_workers=True) as now:
            self._futures.pop(request, None)
            self.machine.cancel(request, now=now)

    def _promote(self, request: FileRequest, urgency: Urgency) -> None:
        with self.decide(wakes_workers=True):
            self.machine.promote(request, urgency)

    def _hand_over(self, done: HandOver, now: float) -> list[Callable[[], object]]:
        """Open the file for a request, or request it again if it has disappeared. The lock is held."""
        request = done.request
        if request.opens:
            handle = self._open(done, now)
            if handle is not None:
                return [partial(_deliver_handle, self._futures.pop(request), handle)]
        elif file_of(done.entry).exists():
            result = FetchResult(done.entry.listed, done.found, done.waited_s)
            return [partial(self._futures.pop(request).deliver, result)]
        else:
            self.machine.file_lost(done, now=now)
        self.machine.request(request, now=now)
        return []

    def _open(self, done: HandOver, now: float) -> CacheFileHandle | None:
        """Open the entry's file. None: it has disappeared. The lock is held."""
        entry = done.entry
        try:
            fd = file_of(entry).acquire(entry.listed.size)
        except OSError:
            self.machine.file_lost(done, now=now)
            return None
        self.machine.handed_over(done, now=now)
        return CacheFileHandle(entry, done.request.origin, fd, done.found, done.waited_s, self)

    # --- handles ------------------------------------------------------------------------------------------

    def read(self, handle: CacheFileHandle, offset: int, length: int) -> TransferFuture[bytes]:
        if offset < 0 or length < 0:
            return refused(ValueError(f"{handle.key}: offset and length are 0 or more"))
        request = ReadRequest(handle.key, handle.origin, offset, length)
        future: TransferFuture[bytes] = TransferFuture(cancelled=partial(self._cancel, request))
        with self.decide(wakes_workers=True) as now:
            self._futures[request] = future
            is_sequential = handle.continues_at(offset, length)
            self.machine.read(handle.entry, request, is_sequential=is_sequential, now=now)
        return future

    def _serve_read(self, request: ReadRequest, entry: CacheEntry, freed_count: int) -> None:
        """Read the bytes of a request. All were on disk when `freed_count` chunks had been freed.

        If a chunk was freed since, the bytes may be those of a hole. They are read again, or fetched once more.
        """
        while True:
            try:
                data = read_entry(entry, request.offset, request.length)
            except OSError as error:
                self._fail_read(request, StorageError(f"{entry.key}: {error}"))
                return
            with self.decide() as now:
                future = self._futures.get(request)
                if future is None:  # cancelled
                    return
                if entry.freed_count == freed_count:
                    del self._futures[request]
                    break
                freed_count = entry.freed_count
                if not entry.has(request.offset, request.length):
                    self.machine.read(entry, request, is_sequential=False, now=now)
                    self.workers.wake()
                    return
        future.deliver(data)

    def _fail_read(self, request: ReadRequest, error: StorageError) -> None:
        future = self._futures.pop(request, None)
        if future is not None:
            future.fail(error)

    def give_back(self, entry: CacheEntry) -> None:
        self._given_back.append(entry)

    def settle(self) -> None:
        with self.decide(wakes_workers=True):
            pass

    def _count_given_back(self, now: float) -> None:
        while self._given_back:
            entry = self._given_back.popleft()
            file_of(entry).release()
            self.machine.handle_closed(entry, now=now)


def _remove_file(entry: CacheEntry) -> None:
    with suppress(OSError):  # a failing disk must not keep callers from their results
        file_of(entry).remove()


def _deliver_handle(future: TransferFuture[CacheFileHandle], handle: CacheFileHandle) -> None:
    if not future.deliver(handle):
        handle.close()
