"""The cache of a node, as `base.Cache` says."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from aliquot.core.errors import AliquotError, InputError
from aliquot.storage.cache.base import (
    CacheSettings,
    CacheStats,
    DatasetStats,
    FetchResult,
    FileHandle,
    TransferFuture,
    Urgency,
    WarmProgress,
    WarmResult,
)
from aliquot.storage.cache.counter import Counter
from aliquot.storage.cache.listing import Listing
from aliquot.storage.cache.ticket import Claim, refused
from aliquot.storage.cache.warming import Warming
from aliquot.storage.errors import AbsentError, RefusedError
from aliquot.storage.origins.base import Origin
from aliquot.storage.paths import check_path
from aliquot.storage.records import FileKey, Listed

ENDING_S = 5.0
MAX_WARMINGS = 16  # at once: each has a thread, which may wait for its origin
T = TypeVar("T")


class NodeCache:
    """`origin_of` gives the origin of a dataset at once, or raises an `AliquotError` when there is no such dataset."""

    def __init__(self, directory: Path, settings: CacheSettings, origin_of: Callable[[str], Origin]) -> None:
        _check(settings)
        self._origin_of = origin_of
        self._counter = Counter(directory, settings)
        self._warmings: dict[Warming, None] = {}
        with self._counter.deciding() as now:
            for entry in self._counter.disk.recover():
                self._counter.shelf.add(entry, now=now)
            self._counter.shelf.make_room(0, now=now)  # the limit may be lower than it was

    def has(self, key: FileKey) -> bool:
        with self._counter.lock:
            entry = self._counter.shelf.entries.get(key)
            return entry is not None and entry.whole

    def arrived_bytes(self, key: FileKey) -> int:
        """Of a file that is on its way."""
        with self._counter.lock:
            transfer = self._counter.flights.transfers.get(key)
            return transfer.arrived_bytes if transfer is not None else 0

    def fetch(self, key: FileKey, *, urgency: Urgency = Urgency.PREFETCH) -> TransferFuture[FetchResult]:
        if urgency is Urgency.PREFETCH and self._counter.settings.prefetch_bytes_per_s == 0:
            return refused(RefusedError(f"{key}: prefetches have no bandwidth: aliquot up --prefetch-bandwidth is 0"))
        return self._enter(Claim(urgency, key, self._counter.left, self._counter.promoted), key, opens=False)

    def open(self, key: FileKey) -> TransferFuture[FileHandle]:
        return self._enter(Claim(Urgency.DEMAND, key, self._counter.left, self._counter.promoted), key, opens=True)

    def _enter(self, claim: Claim[T], key: FileKey, *, opens: bool) -> TransferFuture[T]:
        try:
            check_path(key.path)
            origin = self._origin_of(key.dataset)
        except AliquotError as error:
            return refused(error)
        return self._counter.enter(claim, origin, opens=opens)

    def stat(self, key: FileKey) -> Listed:
        check_path(key.path)
        return self._counter.listings.stat(key, self._origin_of(key.dataset))

    def listing(self, dataset: str) -> Listing:
        return self._counter.listings.listing(dataset, self._origin_of(dataset))

    def warm(
        self, dataset: str, patterns: Sequence[str] = (), told: WarmProgress | None = None
    ) -> TransferFuture[WarmResult]:
        warming = Warming(self, self._counter.settings.limit_bytes, lambda ended: self._warmings.pop(ended, None))
        with self._counter.lock:
            if self._counter.closed:
                return refused(RefusedError("the cache is closed"))
            if len(self._warmings) >= MAX_WARMINGS:
                text = f"{dataset}: {MAX_WARMINGS} datasets are being warmed already; wait until one is"
                return refused(RefusedError(text))
            self._warmings[warming] = None
        return warming.begin(dataset, patterns, told)

    def remove(self, dataset: str) -> None:
        counter = self._counter
        with counter.deciding() as now:
            for transfer in [each for each in counter.flights.transfers.values() if each.key.dataset == dataset]:
                counter.flights.fail(transfer, AbsentError(f"{transfer.key}: the dataset was removed"), now=now)
            for entry in [each for each in counter.shelf.entries.values() if each.key.dataset == dataset]:
                counter.shelf.drop(entry, now=now)
            counter.shelf.stats.pop(dataset, None)
        counter.listings.remove(dataset)

    def empty(self, dataset: str | None = None) -> int:
        counter = self._counter
        with counter.deciding() as now:
            entries = [entry for entry in counter.shelf.entries.values() if not entry.pins and not entry.busy]
            chosen = [entry for entry in entries if dataset in {None, entry.key.dataset}]
            freed = sum(entry.disk_bytes for entry in chosen)
            for entry in chosen:
                counter.shelf.drop(entry, now=now)
        return freed

    def verify(self, dataset: str | None = None) -> list[FileKey]:
        with self._counter.lock:
            entries = [entry for entry in self._counter.shelf.entries.values() if entry.whole]
        chosen = [entry for entry in entries if dataset in {None, entry.key.dataset}]
        return [entry.key for entry in chosen if not self._counter.steps.check(entry)]

    def stats(self) -> CacheStats:
        counter = self._counter
        with counter.deciding():
            datasets = {name: replace(stats) for name, stats in counter.shelf.stats.items()}
            for key, entry in counter.shelf.entries.items():
                stats = datasets.setdefault(key.dataset, DatasetStats())
                stats.files += entry.whole
                stats.bytes += entry.disk_bytes
            for key in counter.flights.transfers:
                datasets.setdefault(key.dataset, DatasetStats()).in_flight += 1
            settings, shelf = counter.settings, counter.shelf
            return CacheStats(
                settings.limit_bytes, shelf.used_bytes, counter.open, len(counter.flights.transfers), datasets
            )

    def close(self) -> None:
        counter = self._counter
        for warming in list(self._warmings):
            warming.stop()
        with counter.deciding() as now:
            if counter.closed:
                return
            counter.closed = True
            for transfer in list(counter.flights.transfers.values()):
                counter.flights.fail(transfer, RefusedError(f"{transfer.key}: the cache is closed"), now=now)
        counter.crew.close()
        counter.listings.close(ENDING_S)
        ends = time.monotonic() + ENDING_S
        for warming in list(self._warmings):
            warming.join(max(0.0, ends - time.monotonic()))
        with counter.deciding() as now:
            for entry in [each for each in counter.shelf.entries.values() if not each.whole]:
                counter.shelf.drop(entry, now=now)
            with suppress(OSError):  # the old index is as true
                counter.disk.rewrite(counter.shelf.entries.values())
            counter.disk.close()


def _check(settings: CacheSettings) -> None:
    for name in ("limit_bytes", "chunk_bytes", "workers"):
        if getattr(settings, name) < 1:
            raise InputError(f"cache.{name}: {getattr(settings, name)}; it takes 1 or more")
    if settings.prefetch_bytes_per_s is not None and settings.prefetch_bytes_per_s < 0:
        raise InputError(f"cache.prefetch_bytes_per_s: {settings.prefetch_bytes_per_s}; it takes 0 or more")
