"""The listings and file versions that the node knows without asking origins again. Listings survive a restart."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, wait
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from aliquot.storage.cache.listings.listing import Listing
from aliquot.storage.errors import AbsentError, CacheRefusedError, OriginError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import FileKey, Listed

SETTLED_S = 2.0  # origins may give modification times in whole seconds
MAX_KNOWN_FILES = 20_000
MAX_STALLS = 10  # a listing without progress for this many stall timeouts is started anew
MAX_LISTED_FILES = 5_000_000


class _KnownFile(NamedTuple):
    listed: Listed | None  # None: the origin has no such file
    at_s: float
    origin: str


class _KnownListing(NamedTuple):
    listing: Listing
    at_s: float
    origin: str


class _SavedListing(msgspec.Struct, frozen=True):
    origin: str
    files: list[Listed]


class _ListingRun:
    """A listing in progress, in a thread of its own."""

    def __init__(self, origin: Origin, run: Callable[["_ListingRun"], None]) -> None:
        self.origin = origin
        self.progress_s = time.monotonic()  # when its origin last sent a file
        self.done: Future[None] = Future()
        self._thread = threading.Thread(target=run, args=(self,), name="renew listing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


class KnownListings:
    """Remembers listings and versions. Thread-safe by its own lock, because it waits for origins."""

    def __init__(self, directory: Path, revalidate_s: float, relist_s: float, stall_s: float) -> None:
        self._directory = directory
        self._revalidate_s = revalidate_s
        self._relist_s = relist_s
        self._stall_s = stall_s
        self._lock = threading.Lock()
        self._listings: dict[str, _KnownListing] = {}
        self._running: dict[tuple[str, str], _ListingRun] = {}  # one per dataset and origin
        self._closed = False
        self._disproved: set[FileKey] = set()  # files whose listed version has turned out to be wrong
        self._files: OrderedDict[FileKey, _KnownFile] = OrderedDict()

    def listing(self, dataset: str, origin: Origin) -> Listing:
        """Return the known listing, and renew an old one in the background. Only the first waits for the origin."""
        known = self._current(dataset, origin) or self._load(dataset, origin) or self._first(dataset, origin)
        if time.monotonic() - known.at_s > self._relist_s:
            self.renew(dataset, origin)
        return known.listing

    def _first(self, dataset: str, origin: Origin) -> _KnownListing:
        """Wait for the first listing as long as it makes progress."""
        while (known := self._current(dataset, origin)) is None:
            run = self.renew(dataset, origin)
            if run is None:
                raise CacheRefusedError("the cache is closed")
            wait([run.done], max(0.0, run.progress_s + self._stall_s - time.monotonic()))
            if not run.done.done():
                if time.monotonic() - run.progress_s < self._stall_s:
                    continue
                raise OriginError(
                    f"{dataset}: is still being listed, and its origin has sent nothing for {self._stall_s:g} s; "
                    "try again later"
                )
            error = run.done.exception()
            if error is not None:
                raise error
        return known

    def stat(self, key: FileKey, origin: Origin) -> Listed:
        """Return the file as the listing has it, or ask the origin if the listing is too old."""
        known = self._current(key.dataset, origin)
        listed = known.listing.find(key.path) if known is not None else None
        if known is not None and listed is not None and time.monotonic() - known.at_s <= self._relist_s:
            return listed
        try:
            return self.ask(key, origin)
        except OriginError:
            if listed is None:
                raise
            return listed

    def ask(self, key: FileKey, origin: Origin) -> Listed:
        """Return the file as the origin has it, or had it within `revalidate_s`."""
        now = time.monotonic()
        with self._lock:
            known = self._files.get(key)
        if known is not None and known.origin == origin.identity and now - known.at_s <= self._revalidate_s:
            if known.listed is None:
                raise AbsentError(f"{key}: its origin has no such file")
            return known.listed
        try:
            listed = origin.stat(key.path)
        except AbsentError:
            self._remember(key, _KnownFile(None, now, origin.identity))
            raise
        listed = self._with_checksum(key, listed, origin)
        self._remember(key, _KnownFile(listed, now, origin.identity))
        return listed

    def expected(self, key: FileKey, origin: Origin) -> Listed | None:
        """Return the file as the listing has it, however old. None: not listed, disproved, or only just modified."""
        known = self._current(key.dataset, origin)
        listed = known.listing.find(key.path) if known is not None else None
        if listed is None or not listed.version or time.time() - listed.mtime_s < SETTLED_S:
            return None
        with self._lock:
            return None if key in self._disproved else listed

    def disprove(self, key: FileKey) -> None:
        """Forget the known version of a file, because its origin has another one."""
        with self._lock:
            self._files.pop(key, None)
            self._disproved.add(key)

    def close(self, timeout_s: float) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        ends_s = time.monotonic() + timeout_s
        for run in running:
            run.join(max(0.0, ends_s - time.monotonic()))

    def remove(self, dataset: str) -> None:
        with self._lock:
            self._listings.pop(dataset, None)
            for key in [key for key in self._files if key.dataset == dataset]:
                del self._files[key]
        self._path(dataset).unlink(missing_ok=True)

    def _current(self, dataset: str, origin: Origin) -> _KnownListing | None:
        with self._lock:
            known = self._listings.get(dataset)
        return known if known is not None and known.origin == origin.identity else None

    def _with_checksum(self, key: FileKey, listed: Listed, origin: Origin) -> Listed:
        known = self._current(key.dataset, origin)
        named = known.listing.find(key.path) if known is not None else None
        if listed.checksum or named is None or not named.checksum:
            return listed
        return msgspec.structs.replace(listed, checksum=named.checksum)

    def _remember(self, key: FileKey, known: _KnownFile) -> None:
        with self._lock:
            self._files[key] = known
            self._files.move_to_end(key)
            while len(self._files) > MAX_KNOWN_FILES:
                self._files.popitem(last=False)

    # --- renewal ------------------------------------------------------------------------------------------

    def renew(self, dataset: str, origin: Origin) -> _ListingRun | None:
        """Start to list a dataset, or return the listing that is running. None: the cache is closed."""
        with self._lock:
            run = self._running.get((dataset, origin.identity))
            if run is not None and time.monotonic() - run.progress_s > MAX_STALLS * self._stall_s:
                run = None  # it is given up, and its outcome no longer counts
            if run is None:
                if self._closed:
                    return None
                run = _ListingRun(origin, lambda run: self._run(dataset, run))
                self._running[dataset, origin.identity] = run
                run.start()
            return run

    def _run(self, dataset: str, run: _ListingRun) -> None:
        error: Exception | None = None
        try:
            self._list(dataset, run)
        except Exception as failure:  # noqa: BLE001 - it is passed on to the waiting callers
            error = failure
        with self._lock:
            if self._is_current(dataset, run):
                known = self._listings.get(dataset)
                if error is not None and known is not None:  # keep the old one, and try again after `revalidate_s`
                    again_s = time.monotonic() - self._relist_s + self._revalidate_s
                    self._listings[dataset] = known._replace(at_s=again_s)
                del self._running[dataset, run.origin.identity]
        if error is None:
            run.done.set_result(None)
        else:
            run.done.set_exception(error)

    def _list(self, dataset: str, run: _ListingRun) -> None:
        origin = run.origin
        files: list[Listed] = []
        for file in origin.files():
            files.append(file)
            run.progress_s = time.monotonic()
            if len(files) > MAX_LISTED_FILES:
                raise OriginError(f"{dataset}: its origin lists more than {MAX_LISTED_FILES} files")
        listing = Listing(files)
        old = self._current(dataset, origin)
        if origin.may_be_unmounted and not files and old is not None and old.listing.files:
            raise OriginError(f"{dataset}: its origin lists no files any more; is it mounted?")
        changed = old is None or old.listing.files != listing.files
        if old is not None and not changed:  # the same object shows its holders that nothing has changed
            listing = old.listing
        known = _KnownListing(listing, time.monotonic(), origin.identity)
        with self._lock:
            if not self._is_current(dataset, run):
                return
            self._listings[dataset] = known
            self._disproved = {key for key in self._disproved if key.dataset != dataset}
        if changed:
            self._save(dataset, known)

    def _is_current(self, dataset: str, run: _ListingRun) -> bool:
        """Return whether no other run has replaced this one. The lock is held."""
        return self._running.get((dataset, run.origin.identity)) is run

    # --- files of listings --------------------------------------------------------------------------------

    def _path(self, dataset: str) -> Path:
        return self._directory / f"{blake2b(dataset.encode(), digest_size=16).hexdigest()}.listing"

    def _save(self, dataset: str, known: _KnownListing) -> None:
        """Save a listing if the disk allows it. Without it, the next start lists the dataset again."""
        path = self._path(dataset)
        fresh = path.with_suffix(f".{threading.get_ident()}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh.write_bytes(msgspec.msgpack.encode(_SavedListing(known.origin, list(known.listing))))
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)

    def _load(self, dataset: str, origin: Origin) -> _KnownListing | None:
        try:
            saved = msgspec.msgpack.decode(self._path(dataset).read_bytes(), type=_SavedListing)
        except (OSError, msgspec.MsgspecError):
            return None
        if saved.origin != origin.identity:
            return None
        loaded = _KnownListing(Listing(saved.files), float("-inf"), saved.origin)
        with self._lock:
            newer = self._listings.get(dataset)
            if newer is not None and newer.origin == saved.origin:
                return newer
            self._listings[dataset] = loaded
        return loaded
