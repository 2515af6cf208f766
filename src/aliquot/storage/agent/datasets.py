"""The datasets that the agent knows, their origins, and the cache that they share. Methods may wait for origins."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from aliquot.core.errors import AliquotError
from aliquot.storage.cache import Cache, CacheSettings, DatasetStats, NodeCache
from aliquot.storage.errors import AbsentError
from aliquot.storage.origins import Origin, origin_for
from aliquot.storage.records import Dataset
from aliquot.storage.settings import FabricSettings
from aliquot.storage.telling import redact_for_tenants

Value = dict[str, int | float | str | None]


REMOVED = "there is no such dataset any more"


class NodeDatasets:
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
            self.cache.remove(name)  # it went while no agent was there to hear of it

    def _origin_of(self, name: str) -> Origin:
        """Made when it is first asked for: one that is wrong is in nobody's way. Raises `StorageError`."""
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

    # --- what the server asks -----------------------------------------------------------------------------

    def check(self, dataset: Dataset) -> Value:
        origin = origin_for(dataset)
        try:
            origin.check()
        finally:
            origin.close()
        return {}

    def put(self, dataset: Dataset) -> Origin | None:
        """At once. The origin that it had, if it has another now: what is cached of that one is not its own."""
        with self._lock:
            old = self._datasets.get(dataset.name)
            self._datasets[dataset.name] = dataset
            same = old is not None and (old.url, old.options) == (dataset.url, dataset.options)
            return None if same else self._origins.pop(dataset.name, None)

    def remove(self, name: str) -> Origin | None:
        """At once. The origin that it had; its files leave the cache by `cache.remove`."""
        with self._lock:
            self._datasets.pop(name, None)
            return self._origins.pop(name, None)

    def evict(self, name: str) -> Value:
        """Its files leave the node, but those that are open or on their way; what is known of it stays."""
        before = self._here(name)
        self.cache.empty(name)
        after = self._here(name)
        return {"files": max(0, before.files - after.files), "bytes": max(0, before.bytes - after.bytes)}

    def forget(self, name: str) -> Value:
        """It was removed: all of it leaves the node."""
        self.cache.remove(name)
        return {}

    def prime(self, name: str) -> None:
        """Have its listing at hand before somebody looks into it."""
        with suppress(AliquotError):  # whoever looks will be told
            self.cache.listing(name)

    def _here(self, name: str) -> DatasetStats:
        return self.cache.stats().datasets.get(name) or DatasetStats()

    def here(self, name: str) -> Value:
        """How much of it is on the node. Waits for no origin."""
        here = self._here(name)
        return {"cached_files": here.files, "cached_bytes": here.bytes}

    def look(self, name: str) -> Value:
        """How much there is, or why that is not known."""
        try:
            listing = self.cache.listing(name)
        except AliquotError as error:
            return {"trouble": str(error)}
        return {"files": len(listing), "bytes": listing.bytes}

    # --- what others here ask -----------------------------------------------------------------------------

    def is_shown(self, name: str, tenant: str) -> bool:
        with self._lock:
            dataset = self._datasets.get(name)
        return dataset is not None and dataset.is_shown_to(tenant)

    def redact_for_tenants(self, name: str, error: str) -> str:
        """What tenants may read of what went wrong."""
        with self._lock:
            dataset = self._datasets.get(name)
        return redact_for_tenants(error, dataset) if dataset is not None else REMOVED

    def figures(self) -> dict[str, float]:
        stats = self.cache.stats()
        fields = ("files", "bytes", "hits", "misses", "fetched_bytes", "prefetched_bytes", "evicted_bytes")
        sums: dict[str, float] = {name: sum(getattr(one, name) for one in stats.datasets.values()) for name in fields}
        return sums | {"datasets": len(self._datasets), "limit_bytes": stats.limit_bytes, "in_flight": stats.in_flight}
