"""What a node's datasets have in them, as all its views show it."""

from concurrent.futures import Executor, Future

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
    def __init__(self, cache: Cache, aside: Executor) -> None:
        self._cache = cache
        self._aside = aside
        self._learning: dict[str, Future[Listing]] = {}
        self._contents: dict[str, Contents] = {}
        self._gone: set[str] = set()  # datasets that were removed

    def is_known(self, dataset: str) -> bool:
        """Whether `contents` answers without waiting for the origin."""
        return dataset in self._contents

    def learn(self, dataset: str) -> Future[None]:
        """Done when it is known, or with why not. One question to the origin, however many wait; each may give up."""
        learning = self._learning.get(dataset)
        if learning is None or learning.done():
            learning = self._learning[dataset] = self._aside.submit(self._cache.listing, dataset)
        mine: Future[None] = Future()
        learning.add_done_callback(lambda done: _pass_on(done.exception(), mine))
        return mine

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


def _pass_on(error: BaseException | None, to: Future[None]) -> None:
    if to.set_running_or_notify_cancel():
        if error is None:
            to.set_result(None)
        else:
            to.set_exception(error)
