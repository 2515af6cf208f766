"""What a node's datasets have in them, as all its views show it."""

from aliquot.storage.cache.base import Cache
from aliquot.storage.cache.listing import Listing
from aliquot.storage.records import FileKey, Listed


class Contents:
    """A dataset's, as they are known right now: its listing, but for what an open has found to be otherwise since."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.newer: dict[str, Listed | None] = {}  # None: it is there no more

    def find(self, path: str) -> Listed | None:
        return self.newer[path] if path in self.newer else self.listing.files.get(path)


class Names:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._contents: dict[str, Contents] = {}
        self._gone: set[str] = set()  # datasets that were removed

    def is_known(self, dataset: str) -> bool:
        """Whether `contents` answers without waiting for the origin."""
        return dataset in self._contents

    def learn(self, dataset: str) -> Listing:
        """Waits for the origin; from any thread. Raises `StorageError`."""
        return self._cache.listing(dataset)

    def contents(self, dataset: str) -> Contents:
        listing = self._cache.listing(dataset)
        known = self._contents.get(dataset)
        if known is None or known.listing is not listing:
            known = self._contents[dataset] = Contents(listing)
        return known

    def drop(self, dataset: str) -> None:
        """It is removed; until it is renewed, no view shows it."""
        self._gone.add(dataset)
        self._contents.pop(dataset, None)

    def renew(self, dataset: str) -> None:
        """It is new, or another: whoever asks next waits for what is in it."""
        self._gone.discard(dataset)
        self._contents.pop(dataset, None)

    def is_gone(self, dataset: str) -> bool:
        return dataset in self._gone

    def correct(self, key: FileKey, listed: Listed | None) -> None:
        """The file is this now; None: there is none. Until there is a newer listing."""
        known = self._contents.get(key.dataset)
        if known is not None:
            known.newer[key.path] = listed
