"""The node's cache: the facade that implements `base.Cache`."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from aliquot.core.errors import AliquotError, InputError
from aliquot.storage.cache.base import FileHandle, WarmProgress
from aliquot.storage.cache.futures import TransferFuture, refused
from aliquot.storage.cache.listings.listing import Listing
from aliquot.storage.cache.records import CacheSettings, CacheStats, FetchResult, Urgency, WarmOutcome
from aliquot.storage.cache.requests import CacheRequests
from aliquot.storage.cache.warming import WarmingThread
from aliquot.storage.errors import CacheRefusedError
from aliquot.storage.origins.base import Origin
from aliquot.storage.paths import check_path
from aliquot.storage.records import FileKey, Listed

CLOSE_TIMEOUT_S = 5.0
MAX_WARMINGS = 16  # at once: each has a thread, which may wait for its origin


class NodeCache:
    """The cache in one directory, which no other process may use at the same time.

    `origin_of` returns the origin of a dataset without waiting, or raises an `AliquotError` if there is no such
    dataset.
    """

    def __init__(self, directory: Path, settings: CacheSettings, origin_of: Callable[[str], Origin]) -> None:
        _check(settings)
        self._settings = settings
        self._origin_of = origin_of
        self._requests = CacheRequests(directory, settings)
        self._machine = self._requests.machine
        self._warmings: dict[WarmingThread, None] = {}

    def has(self, key: FileKey) -> bool:
        with self._requests.lock:
            entry = self._machine.space.entries.get(key)
            return entry is not None and entry.whole

    def arrived_bytes(self, key: FileKey) -> int:
        """Return how many bytes of a running transfer have arrived."""
        with self._requests.lock:
            transfer = self._machine.transfers.get(key)
            return transfer.arrived_bytes if transfer is not None else 0

    def try_open(self, key: FileKey) -> FileHandle | None:
        try:
            origin = self._checked_origin(key)
        except AliquotError:
            return None
        return self._requests.try_open(key, origin)

    def open(self, key: FileKey) -> TransferFuture[FileHandle]:
        try:
            origin = self._checked_origin(key)
        except AliquotError as error:
            return refused(error)
        return self._requests.open(key, origin)

    def fetch(self, key: FileKey, *, urgency: Urgency = Urgency.PREFETCH) -> TransferFuture[FetchResult]:
        if urgency is Urgency.PREFETCH and self._settings.prefetch_bytes_per_s == 0:
            return refused(
                CacheRefusedError(f"{key}: prefetches have no bandwidth: aliquot up --prefetch-bandwidth is 0")
            )
        try:
            origin = self._checked_origin(key)
        except AliquotError as error:
            return refused(error)
        return self._requests.fetch(key, origin, urgency)

    def _checked_origin(self, key: FileKey) -> Origin:
        check_path(key.path)
        return self._origin_of(key.dataset)

    def stat(self, key: FileKey) -> Listed:
        return self._requests.listings.stat(key, self._checked_origin(key))

    def listing(self, dataset: str) -> Listing:
        return self._requests.listings.listing(dataset, self._origin_of(dataset))

    def warm(
        self, dataset: str, patterns: Sequence[str] = (), progress: WarmProgress | None = None
    ) -> TransferFuture[WarmOutcome]:
        warming = WarmingThread(self, self._settings.limit_bytes, dataset, patterns, progress, self._warming_ended)
        with self._requests.lock:
            if self._requests.closed:
                return refused(CacheRefusedError("the cache is closed"))
            if len(self._warmings) >= MAX_WARMINGS:
                text = f"{dataset}: {MAX_WARMINGS} datasets are being warmed already; wait until one is done"
                return refused(CacheRefusedError(text))
            self._warmings[warming] = None
            warming.start()
        return warming.future

    def _warming_ended(self, warming: WarmingThread) -> None:
        self._warmings.pop(warming, None)

    def remove(self, dataset: str) -> None:
        with self._requests.decide(wakes_workers=True) as now:
            self._machine.remove_dataset(dataset, now=now)
        self._requests.listings.remove(dataset)

    def empty(self, dataset: str | None = None) -> int:
        with self._requests.decide(wakes_workers=True) as now:
            return self._machine.drop_unused(dataset, now=now)

    def verify(self, dataset: str | None = None) -> list[FileKey]:
        with self._requests.lock:
            whole = [entry for entry in self._machine.space.entries.values() if entry.whole]
        chosen = [entry for entry in whole if dataset in {None, entry.key.dataset}]
        return [entry.key for entry in chosen if not self._requests.runner.check_file(entry)]

    def stats(self) -> CacheStats:
        with self._requests.decide(wakes_workers=True):
            return self._machine.stats()

    def close(self) -> None:
        requests = self._requests
        for warming in list(self._warmings):
            warming.stop()
        if not requests.close():
            return
        requests.workers.close()
        requests.listings.close(CLOSE_TIMEOUT_S)
        ends_s = time.monotonic() + CLOSE_TIMEOUT_S
        for warming in list(self._warmings):
            warming.join(max(0.0, ends_s - time.monotonic()))
        with requests.decide() as now:
            self._machine.drop_partial(now=now)
            requests.directory.close(self._machine.space.entries.values())


def _check(settings: CacheSettings) -> None:
    for name in ("limit_bytes", "chunk_bytes", "workers"):
        if getattr(settings, name) < 1:
            raise InputError(f"cache.{name}: {getattr(settings, name)}; it takes 1 or more")
    if settings.prefetch_bytes_per_s is not None and settings.prefetch_bytes_per_s < 0:
        raise InputError(f"cache.prefetch_bytes_per_s: {settings.prefetch_bytes_per_s}; it takes 0 or more")
