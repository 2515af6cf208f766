"""`warm`: a thread that fetches the matching files of a dataset, some of them at a time."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from typing import Protocol

from aliquot.core.errors import AliquotError
from aliquot.storage.cache.base import WarmProgress
from aliquot.storage.cache.futures import TransferFuture
from aliquot.storage.cache.listings.listing import Listing
from aliquot.storage.cache.records import FetchResult, Urgency, WarmOutcome
from aliquot.storage.errors import RoomError
from aliquot.storage.records import FileKey, Listed

MAX_FETCHES = 16  # at once: at most half of the workers serve them, and each choice of a step looks at all of them
PROGRESS_INTERVAL_S = 0.2


class FileFetcher(Protocol):
    """The part of the cache that warming needs."""

    def fetch(self, key: FileKey, *, urgency: Urgency) -> TransferFuture[FetchResult]: ...
    def listing(self, dataset: str) -> Listing: ...
    def arrived_bytes(self, key: FileKey) -> int:
        """Return how many bytes of a running transfer have arrived."""


class WarmingThread:
    """Fetches the files of one dataset. Cancelling its future stops it."""

    def __init__(
        self,
        cache: FileFetcher,
        limit_bytes: int,
        dataset: str,
        patterns: Sequence[str],
        progress: WarmProgress | None,
        ended: Callable[["WarmingThread"], None],
    ) -> None:
        self.future: TransferFuture[WarmOutcome] = TransferFuture(cancelled=self.stop)
        self._cache = cache
        self._limit_bytes = limit_bytes
        self._dataset = dataset
        self._patterns = patterns
        self._progress: WarmProgress = progress or (lambda *_: None)
        self._ended = ended
        self._stopped = threading.Event()
        self._fetching: dict[TransferFuture[FetchResult], Listed] = {}
        self._files = self._bytes = self._failed = 0
        self._error = ""
        self._thread = threading.Thread(target=self._run, name=f"warming {dataset}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._fetch_all(self._matching_files())
            self.future.deliver(WarmOutcome(self._files, self._bytes, self._failed, self._error))
        except Exception as error:  # noqa: BLE001 - it is passed on to the caller
            self.future.fail(error)
        finally:
            for fetch in self._fetching:
                fetch.cancel()
            self._ended(self)

    def _matching_files(self) -> list[Listed]:
        files = self._cache.listing(self._dataset).matching(self._patterns)
        total_bytes = sum(file.size for file in files)
        if total_bytes > self._limit_bytes:
            raise RoomError(
                f"{self._dataset}: {len(files)} files of {total_bytes} bytes do not fit into the cache of "
                f"{self._limit_bytes} bytes (aliquot up --cache-size); select fewer by patterns"
            )
        return files

    def _fetch_all(self, files: list[Listed]) -> None:
        total_bytes = sum(file.size for file in files)
        remaining = iter(files)
        reported_s = float("-inf")
        while not self._stopped.is_set():
            while len(self._fetching) < MAX_FETCHES and (file := next(remaining, None)) is not None:
                self._fetching[self._cache.fetch(self._key(file), urgency=Urgency.WARM)] = file
            if not self._fetching:
                break
            done, _ = wait(self._fetching, timeout=PROGRESS_INTERVAL_S, return_when=FIRST_COMPLETED)
            for fetch in [fetch for fetch in self._fetching if fetch in done]:
                self._count(fetch, self._fetching.pop(fetch))
            if time.monotonic() - reported_s >= PROGRESS_INTERVAL_S:
                reported_s = time.monotonic()
                arrived = sum(self._cache.arrived_bytes(self._key(file)) for file in self._fetching.values())
                self._progress(self._files, len(files), self._bytes + arrived, total_bytes)
        self._progress(self._files, len(files), self._bytes, total_bytes)

    def _key(self, file: Listed) -> FileKey:
        return FileKey(self._dataset, file.path)

    def _count(self, fetch: TransferFuture[FetchResult], file: Listed) -> None:
        try:
            size = fetch.result().listed.size
        except (AliquotError, CancelledError) as error:
            self._failed += 1
            self._error = self._error or f"{file.path}: {error}"
        else:
            self._files += 1
            self._bytes += size
