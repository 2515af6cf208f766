"""The contents of the node's datasets as all views show them. Nothing here waits: lookups run in threads."""

import time
from concurrent.futures import Future
from typing import NamedTuple

from aliquot.storage.cache import Cache, Listing
from aliquot.storage.errors import AbsentError
from aliquot.storage.lookups import DatasetLookups
from aliquot.storage.records import FileKey, Listed
from aliquot.storage.view.events import PostWork

REFRESH_INTERVAL_S = 1.0  # between two requests to the cache for a new listing
CORRECTION_LIFETIME_S = 30.0  # how long the result of an open overrides the listing


class _Correction(NamedTuple):
    listed: Listed | None  # None: the file no longer exists
    until_s: float


class DatasetContents:
    """A dataset's listing, corrected by what opens have found since."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._refreshed_s = time.monotonic()
        self._corrections: dict[str, _Correction] = {}

    def mark_current(self) -> None:
        """Note that the cache has no newer listing at this time."""
        self._refreshed_s = time.monotonic()

    @property
    def age_s(self) -> float:
        """The time since the cache last returned a listing."""
        return time.monotonic() - self._refreshed_s

    def find(self, path: str) -> Listed | None:
        correction = self._corrections.get(path)
        if correction is None:
            return self.listing.files.get(path)
        if time.monotonic() > correction.until_s:
            del self._corrections[path]
            return self.listing.files.get(path)
        return correction.listed

    def correct(self, path: str, listed: Listed | None) -> None:
        self._corrections[path] = _Correction(listed, time.monotonic() + CORRECTION_LIFETIME_S)


class NodeContents:
    """The contents of all datasets. Used on the views' thread only."""

    def __init__(self, cache: Cache, post: PostWork) -> None:
        self._lookups = DatasetLookups(cache.listing)
        self._post = post
        self._contents: dict[str, DatasetContents] = {}
        self._running: dict[str, Future[Listing]] = {}  # the running lookup of each dataset
        self._waiting: dict[str, list[Future[None]]] = {}
        self._removed: set[str] = set()  # datasets that were removed

    def is_known(self, dataset: str) -> bool:
        return dataset in self._contents

    def contents(self, dataset: str) -> DatasetContents:
        """Return the contents of a known dataset. Raises `AbsentError` if it was just removed."""
        known = self._contents.get(dataset)
        if known is None:
            raise AbsentError(f"dataset {dataset}: it is not known any more")
        if known.age_s > REFRESH_INTERVAL_S:
            self._look_up(dataset)
        return known

    def learn(self, dataset: str) -> Future[None]:
        """Return a future that is done when the contents are known, or fails. It may be cancelled."""
        mine: Future[None] = Future()
        self._waiting.setdefault(dataset, []).append(mine)
        self._look_up(dataset)
        return mine

    def drop(self, dataset: str) -> None:
        """Remove a dataset. No view shows it until it is renewed."""
        self._removed.add(dataset)
        self._contents.pop(dataset, None)
        self._drop_lookup(dataset)
        self._answer(dataset, AbsentError(f"dataset {dataset}: it was removed"))

    def renew(self, dataset: str) -> None:
        """Add or replace a dataset. Known contents and running lookups are dropped."""
        self._removed.discard(dataset)
        self._contents.pop(dataset, None)
        self._drop_lookup(dataset)
        if dataset in self._waiting:
            self._look_up(dataset)

    def is_removed(self, dataset: str) -> bool:
        return dataset in self._removed

    def correct(self, key: FileKey, listed: Listed | None) -> None:
        """Override a file of the listing. None means that it no longer exists. A new listing ends the override."""
        known = self._contents.get(key.dataset)
        if known is not None:
            known.correct(key.path, listed)

    def _look_up(self, dataset: str) -> None:
        if dataset not in self._running:
            lookup = self._running[dataset] = self._lookups.begin(dataset)
            lookup.add_done_callback(lambda done: self._post(lambda: self._looked_up(dataset, done)))

    def _drop_lookup(self, dataset: str) -> None:
        """Drop the running lookup, because its answer is about the old dataset."""
        self._running.pop(dataset, None)
        self._lookups.forget(dataset)

    def _looked_up(self, dataset: str, done: Future[Listing]) -> None:
        if self._running.get(dataset) is not done:
            return  # the answer is about the old dataset
        del self._running[dataset]
        error = done.exception()
        known = self._contents.get(dataset)
        if known is not None:
            known.mark_current()
        if error is None and (known is None or known.listing is not done.result()):
            self._contents[dataset] = DatasetContents(done.result())
        self._answer(dataset, error)

    def _answer(self, dataset: str, error: BaseException | None) -> None:
        for waiting in self._waiting.pop(dataset, ()):
            if not waiting.set_running_or_notify_cancel():
                continue
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)
