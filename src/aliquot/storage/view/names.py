"""What a node's datasets have in them, as all its views show it."""

from aliquot.storage.cache.base import Cache
from aliquot.storage.cache.listing import Listing
from aliquot.storage.records import FileKey, Listed


class Names:
    """A listing may be older than what an open found; what it found is then shown until there is a newer listing."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._listings: dict[str, Listing] = {}
        self._newer: dict[str, dict[str, Listed | None]] = {}

    def is_known(self, dataset: str) -> bool:
        """Whether `listing` answers without waiting for the origin."""
        return dataset in self._listings

    def learn(self, dataset: str) -> Listing:
        """Waits for the origin; from any thread. Raises `StorageError`."""
        return self._cache.listing(dataset)

    def listing(self, dataset: str) -> Listing:
        listing = self._cache.listing(dataset)
        if self._listings.get(dataset) is not listing:
            self._listings[dataset] = listing
            self._newer.pop(dataset, None)
        return listing

    def forget(self, dataset: str) -> None:
        """It could not be had; the next one to ask waits for it again."""
        self._listings.pop(dataset, None)

    def find(self, dataset: str, path: str) -> Listed | None:
        listing = self.listing(dataset)
        newer = self._newer.get(dataset)
        return newer[path] if newer is not None and path in newer else listing.find(path)

    def correct(self, key: FileKey, listed: Listed | None) -> None:
        """The file is this now; None: there is none."""
        self._newer.setdefault(key.dataset, {})[key.path] = listed
