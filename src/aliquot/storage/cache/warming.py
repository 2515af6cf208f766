"""`warm`: every file of a dataset that matches, brought by a thread that keeps some on their way."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from typing import Protocol

from aliquot.core.errors import AliquotError
from aliquot.storage.cache.base import FetchResult, TransferFuture, Urgency, WarmProgress, WarmResult
from aliquot.storage.cache.listing import Listing
from aliquot.storage.cache.ticket import Claim
from aliquot.storage.errors import RoomError
from aliquot.storage.records import FileKey, Listed

AT_ONCE = 16  # on their way; half of the workers at most are for them, and who looks for work looks at all of them
TOLD_EVERY_S = 0.2


class Fetcher(Protocol):
    def fetch(self, key: FileKey, *, urgency: Urgency) -> TransferFuture[FetchResult]: ...
    def listing(self, dataset: str) -> Listing: ...
    def arrived_bytes(self, key: FileKey) -> int:
        """Of a file that is on its way."""


class Warming:
    def __init__(self, cache: Fetcher, limit_bytes: int, ended: Callable[["Warming"], None]) -> None:
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._ended = ended
        self._stopped = threading.Event()
        self._claim: Claim[WarmResult] = Claim(Urgency.WARM, None, lambda _: self.stop())
        self._under_way: dict[TransferFuture[FetchResult], Listed] = {}
        self._files = self._bytes = self._failed = 0
        self._error = ""
        self._thread: threading.Thread | None = None

    def begin(self, dataset: str, patterns: Sequence[str], told: WarmProgress | None) -> TransferFuture[WarmResult]:
        work = (dataset, patterns, told)
        self._thread = threading.Thread(target=self._run, args=work, name=f"warming {dataset}", daemon=True)
        self._thread.start()
        return self._claim

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, dataset: str, patterns: Sequence[str], told: WarmProgress | None) -> None:
        try:
            wanted = self._wanted(dataset, patterns)
            self._bring(dataset, wanted, told or (lambda *_: None))
            self._claim.deliver(WarmResult(self._files, self._bytes, self._failed, self._error))
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            self._claim.fail(error)
        finally:
            for ticket in self._under_way:
                ticket.cancel()
            self._ended(self)

    def _wanted(self, dataset: str, patterns: Sequence[str]) -> list[Listed]:
        wanted = self._cache.listing(dataset).matching(patterns)
        total = sum(file.size for file in wanted)
        if total > self._limit_bytes:
            raise RoomError(
                f"{dataset}: {len(wanted)} files of {total} bytes do not fit into the cache of {self._limit_bytes} "
                "bytes (aliquot up --cache-size); name fewer by patterns"
            )
        return wanted

    def _bring(self, dataset: str, wanted: list[Listed], told: WarmProgress) -> None:
        of = (len(wanted), sum(file.size for file in wanted))
        waiting = iter(wanted)
        told_s = float("-inf")
        while not self._stopped.is_set():
            while len(self._under_way) < AT_ONCE and (file := next(waiting, None)) is not None:
                ticket = self._cache.fetch(FileKey(dataset, file.path), urgency=Urgency.WARM)
                self._under_way[ticket] = file
            if not self._under_way:
                break
            done, _ = wait(self._under_way, timeout=TOLD_EVERY_S, return_when=FIRST_COMPLETED)
            for ticket in [ticket for ticket in self._under_way if ticket in done]:
                self._count(ticket, self._under_way.pop(ticket))
            if time.monotonic() - told_s >= TOLD_EVERY_S:
                told_s = time.monotonic()
                coming = sum(
                    self._cache.arrived_bytes(FileKey(dataset, file.path)) for file in self._under_way.values()
                )
                told(self._files, of[0], self._bytes + coming, of[1])
        told(self._files, of[0], self._bytes, of[1])

    def _count(self, ticket: TransferFuture[FetchResult], file: Listed) -> None:
        try:
            size = ticket.result().listed.size
        except (AliquotError, CancelledError) as error:
            self._failed += 1
            self._error = self._error or f"{file.path}: {error}"
        else:
            self._files += 1
            self._bytes += size
