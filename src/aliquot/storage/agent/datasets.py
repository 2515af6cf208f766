"""The datasets that the agent knows, their origins, and the cache that they share."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from aliquot.core.errors import AliquotError
from aliquot.storage.addresses import redact_for_tenants
from aliquot.storage.cache import Cache, CacheSettings, DatasetStats, NodeCache
from aliquot.storage.errors import AbsentError
from aliquot.storage.origins import Origin, origin_for
from aliquot.storage.records import Dataset
from aliquot.storage.settings import FabricSettings

Value = dict[str, int | float | str | None]

REMOVED = "there is no such dataset any more"


class NodeDatasets:
    """All datasets of the node. Thread-safe. Methods may wait for origins, except those that say otherwise."""

    def __init__(self, settings: FabricSettings, datasets: Iterable[Dataset]) -> None:
        self._lock = threading.Lock()
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._origins: dict[str, Origin] = {}
        directory = Path(settings.cache_directory)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        cache_settings = CacheSettings(
            settings.cache_bytes, settings.eviction, prefetch_bytes_per_s=settings.prefetch_bytes_per_s
        )
        self.cache: Cache = NodeCache(directory, cache_settings, self._origin_of)
        for name in self.cache.stats().datasets.keys() - self._datasets.keys():
            self.cache.remove(name)  # it was removed while no agent ran

    def _origin_of(self, name: str) -> Origin:
        """Return a dataset's origin, made at its first use so that a wrong one fails alone. Raises `StorageError`."""
        with self._lock:
            dataset, origin = self._datasets.get(name), self._origins.get(name)
        if dataset is None:
            raise AbsentError(f"there is no dataset {name}")
        if origin is None:
            origin = origin_for(dataset)
            with self._lock:
                if self._datasets.get(name) is dataset:
                    origin = self._origins.setdefault(name, origin)
        return origin

    # --- requests of the server -----------------------------------------------------------------------------

    def check(self, dataset: Dataset) -> Value:
        origin = origin_for(dataset)
        try:
            origin.check()
        finally:
            origin.close()
        return {}

    def put(self, dataset: Dataset) -> Origin | None:
        """Add or replace a dataset without waiting. Return its old origin if it has another one now."""
        with self._lock:
            old = self._datasets.get(dataset.name)
            self._datasets[dataset.name] = dataset
            same = old is not None and (old.url, old.options) == (dataset.url, dataset.options)
            return None if same else self._origins.pop(dataset.name, None)

    def remove(self, name: str) -> Origin | None:
        """Remove a dataset without waiting and return its origin. `forget` deletes its cached files."""
        with self._lock:
            self._datasets.pop(name, None)
            return self._origins.pop(name, None)

    def evict(self, name: str) -> Value:
        """Delete a dataset's cached files, except those that are open or being transferred. The dataset stays."""
        before = self._cached_stats(name)
        self.cache.empty(name)
        after = self._cached_stats(name)
        return {"files": max(0, before.files - after.files), "bytes": max(0, before.bytes - after.bytes)}

    def forget(self, name: str) -> Value:
        """Delete everything cached for a removed dataset."""
        self.cache.remove(name)
        return {}

    def prime(self, name: str) -> None:
        """Read a dataset's listing before a view needs it."""
        with suppress(AliquotError):  # a view that needs the listing gets the error
            self.cache.listing(name)

    def _cached_stats(self, name: str) -> DatasetStats:
        return self.cache.stats().datasets.get(name) or DatasetStats()

    def cached_totals(self, name: str) -> Value:
        """Return how many files and bytes of a dataset are cached, without waiting for its origin."""
        stats = self._cached_stats(name)
        return {"cached_files": stats.files, "cached_bytes": stats.bytes}

    def origin_totals(self, name: str) -> Value:
        """Return how many files and bytes the origin of a dataset has, or why they are not known."""
        try:
            listing = self.cache.listing(name)
        except AliquotError as error:
            return {"trouble": str(error)}
        return {"files": len(listing), "bytes": listing.bytes}

    # --- used by other parts of the agent -------------------------------------------------------------------

    def is_shown(self, name: str, tenant: str) -> bool:
        with self._lock:
            dataset = self._datasets.get(name)
        return dataset is not None and dataset.is_shown_to(tenant)

    def redact_for_tenants(self, name: str, error: str) -> str:
        """Return an error's text as tenants may see it."""
        with self._lock:
            dataset = self._datasets.get(name)
        return redact_for_tenants(error, dataset) if dataset is not None else REMOVED

    def figures(self) -> dict[str, float]:
        stats = self.cache.stats()
        fields = ("files", "bytes", "hits", "misses", "fetched_bytes", "prefetched_bytes", "evicted_bytes")
        sums: dict[str, float] = {name: sum(getattr(one, name) for one in stats.datasets.values()) for name in fields}
        return sums | {"datasets": len(self._datasets), "limit_bytes": stats.limit_bytes, "in_flight": stats.in_flight}
