"""What a node's datasets have in them, as all its views show it. Nothing here waits: the cache is asked aside."""

import time
from concurrent.futures import Future
from typing import NamedTuple

from aliquot.storage.cache import Cache, Listing
from aliquot.storage.errors import AbsentError
from aliquot.storage.lookups import DatasetLookups
from aliquot.storage.records import FileKey, Listed
from aliquot.storage.view.events import PostWork

REFRESH_INTERVAL_S = 1.0  # after which the cache is asked whether it has another listing
CORRECTION_LIFETIME_S = (
    30.0  # in which what an open has found counts for more than the listing: it may have been for a moment
)


class _Correction(NamedTuple):
    listed: Listed | None  # None: it is there no more
    until_s: float


class DatasetContents:
    """A dataset's, as they are known right now: its listing, but for what an open has found to be otherwise since."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.looked_s = time.monotonic()
        self._newer: dict[str, _Correction] = {}

    def find(self, path: str) -> Listed | None:
        correction = self._newer.get(path)
        if correction is None:
            return self.listing.files.get(path)
        if time.monotonic() > correction.until_s:
            del self._newer[path]
            return self.listing.files.get(path)
        return correction.listed

    def correct(self, path: str, listed: Listed | None) -> None:
        self._newer[path] = _Correction(listed, time.monotonic() + CORRECTION_LIFETIME_S)


class NodeContents:
    def __init__(self, cache: Cache, post: PostWork) -> None:
        self._looks = DatasetLookups(cache.listing)
        self._post = post
        self._contents: dict[str, DatasetContents] = {}
        self._asked: dict[str, Future[Listing]] = {}  # one question at a time, however many wait
        self._waiting: dict[str, list[Future[None]]] = {}
        self._gone: set[str] = set()  # datasets that were removed

    def is_known(self, dataset: str) -> bool:
        return dataset in self._contents

    def contents(self, dataset: str) -> DatasetContents:
        """Of one that is known. `AbsentError` when it has just gone."""
        known = self._contents.get(dataset)
        if known is None:
            raise AbsentError(f"dataset {dataset}: it is not known any more")
        if time.monotonic() - known.looked_s > REFRESH_INTERVAL_S:
            self._ask(dataset)
        return known

    def learn(self, dataset: str) -> Future[None]:
        """Done when it is known, or with why not. Whoever waits may give up."""
        mine: Future[None] = Future()
        self._waiting.setdefault(dataset, []).append(mine)
        self._ask(dataset)
        return mine

    def drop(self, dataset: str) -> None:
        """It is removed; until it is renewed, no view shows it."""
        self._gone.add(dataset)
        self._contents.pop(dataset, None)
        self._forget_question(dataset)
        self._answer(dataset, AbsentError(f"dataset {dataset}: it was removed"))

    def renew(self, dataset: str) -> None:
        """It is new, or another: what was known of it is old, and so is what the cache says just now."""
        self._gone.discard(dataset)
        self._contents.pop(dataset, None)
        self._forget_question(dataset)
        if dataset in self._waiting:
            self._ask(dataset)

    def is_gone(self, dataset: str) -> bool:
        return dataset in self._gone

    def correct(self, key: FileKey, listed: Listed | None) -> None:
        """The file is this now; None: there is none. For a while, or until there is another listing."""
        known = self._contents.get(key.dataset)
        if known is not None:
            known.correct(key.path, listed)

    def _ask(self, dataset: str) -> None:
        if dataset not in self._asked:
            asked = self._asked[dataset] = self._looks.begin(dataset)
            asked.add_done_callback(lambda done: self._post(lambda: self._told(dataset, done)))

    def _forget_question(self, dataset: str) -> None:
        """Its answer would be about what the dataset was before."""
        self._asked.pop(dataset, None)
        self._looks.forget(dataset)

    def _told(self, dataset: str, done: Future[Listing]) -> None:
        if self._asked.get(dataset) is not done:
            return  # of what it was before
        del self._asked[dataset]
        error = done.exception()
        known = self._contents.get(dataset)
        if known is not None:
            known.looked_s = time.monotonic()
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
