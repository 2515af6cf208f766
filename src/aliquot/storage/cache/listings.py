"""What is known of datasets without asking their origins again: listings, kept over restarts, and single files."""

import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, wait
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from aliquot.storage.cache.listing import Listing
from aliquot.storage.errors import AbsentError, OriginError, RefusedError
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import FileKey, Listed

SETTLED_S = 2.0  # times of files may be told in seconds
MOST_KNOWN = 20_000
LOST = 10  # times the patience with an origin, after which a listing that does not come on is begun anew
MOST_FILES = 5_000_000


class _Known(NamedTuple):
    listed: Listed | None  # None: it is not there
    at_s: float
    origin: str


class _Held(NamedTuple):
    listing: Listing
    at_s: float
    origin: str


class _Saved(msgspec.Struct, frozen=True):
    origin: str
    files: list[Listed]


class _Renewal:
    """A listing that is under way."""

    thread: threading.Thread

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.moved_s = time.monotonic()  # when it last came on
        self.done: Future[None] = Future()


class Listings:
    """Thread-safe, with a lock of its own: origins are asked outside the cache's."""

    def __init__(self, directory: Path, revalidate_s: float, relist_s: float, stall_s: float) -> None:
        self._directory = directory
        self._revalidate_s = revalidate_s
        self._relist_s = relist_s
        self._stall_s = stall_s
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._renewing: dict[tuple[str, str], _Renewal] = {}  # one listing of a dataset's origin at a time
        self._closed = False
        self._doubted: set[FileKey] = set()  # of whom the listing says what is not so any more
        self._known: OrderedDict[FileKey, _Known] = OrderedDict()

    def listing(self, dataset: str, origin: Origin) -> Listing:
        held = self._current(dataset, origin) or self._loaded(dataset, origin) or self._first(dataset, origin)
        if time.monotonic() - held.at_s > self._relist_s:
            self._renew_behind(dataset, origin)
        return held.listing

    def _first(self, dataset: str, origin: Origin) -> _Held:
        """Waited for as long as it comes on; beyond that whoever asks is told at once: no thread is kept waiting."""
        while (held := self._current(dataset, origin)) is None:
            renewal = self._renew_behind(dataset, origin)
            if renewal is None:
                raise RefusedError("the cache is closed")
            wait([renewal.done], max(0.0, renewal.moved_s + self._stall_s - time.monotonic()))
            if not renewal.done.done():
                if time.monotonic() - renewal.moved_s < self._stall_s:
                    continue
                raise OriginError(
                    f"{dataset}: is still being listed, and its origin has said nothing for {self._stall_s:g} s; "
                    "try again later"
                )
            error = renewal.done.exception()
            if error is not None:
                raise error
        return held

    def stat(self, key: FileKey, origin: Origin) -> Listed:
        held = self._current(key.dataset, origin)
        listed = held.listing.find(key.path) if held is not None else None
        if held is not None and listed is not None and time.monotonic() - held.at_s <= self._relist_s:
            return listed
        try:
            return self.ask(key, origin)
        except OriginError:
            if listed is None:
                raise
            return listed

    def ask(self, key: FileKey, origin: Origin) -> Listed:
        """As the origin has it, or had it within `revalidate_s`."""
        now = time.monotonic()
        with self._lock:
            known = self._known.get(key)
        if known is not None and known.origin == origin.identity and now - known.at_s <= self._revalidate_s:
            if known.listed is None:
                raise AbsentError(f"{key}: its origin has no such file")
            return known.listed
        try:
            listed = origin.stat(key.path)
        except AbsentError:
            self._remember(key, _Known(None, now, origin.identity))
            raise
        listed = self._with_checksum(key, listed, origin)
        self._remember(key, _Known(listed, now, origin.identity))
        return listed

    def expected(self, key: FileKey, origin: Origin) -> Listed | None:
        """As the listing has it, however old that is. Not if it had just been written to: it may have been again."""
        held = self._current(key.dataset, origin)
        listed = held.listing.find(key.path) if held is not None else None
        if listed is None or not listed.version or time.time() - listed.mtime_s < SETTLED_S:
            return None
        with self._lock:
            return None if key in self._doubted else listed

    def forget(self, key: FileKey) -> None:
        """What is known of it has turned out not to be so."""
        with self._lock:
            self._known.pop(key, None)
            self._doubted.add(key)

    def close(self, patience_s: float) -> None:
        with self._lock:
            self._closed = True
            threads = [renewal.thread for renewal in self._renewing.values()]
        ends = time.monotonic() + patience_s
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def remove(self, dataset: str) -> None:
        with self._lock:
            self._held.pop(dataset, None)
            for key in [key for key in self._known if key.dataset == dataset]:
                del self._known[key]
        self._file(dataset).unlink(missing_ok=True)

    def _current(self, dataset: str, origin: Origin) -> _Held | None:
        with self._lock:
            held = self._held.get(dataset)
        return held if held is not None and held.origin == origin.identity else None

    def _with_checksum(self, key: FileKey, listed: Listed, origin: Origin) -> Listed:
        held = self._current(key.dataset, origin)
        named = held.listing.find(key.path) if held is not None else None
        if listed.checksum or named is None or not named.checksum:
            return listed
        return msgspec.structs.replace(listed, checksum=named.checksum)

    def _remember(self, key: FileKey, known: _Known) -> None:
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    def _renew(self, dataset: str, renewal: _Renewal) -> None:
        origin = renewal.origin
        files: list[Listed] = []
        for file in origin.files():
            files.append(file)
            renewal.moved_s = time.monotonic()
            if len(files) > MOST_FILES:
                raise OriginError(f"{dataset}: its origin lists more than {MOST_FILES} files")
        listing = Listing(files)
        old = self._current(dataset, origin)
        if origin.may_be_unmounted and not files and old is not None and old.listing.files:
            raise OriginError(f"{dataset}: its origin lists no files any more; is it mounted?")
        changed = old is None or old.listing.files != listing.files
        if old is not None and not changed:  # whoever holds it sees that nothing has changed
            listing = old.listing
        held = _Held(listing, time.monotonic(), origin.identity)
        with self._lock:
            if not self._is_current(dataset, renewal):
                return
            self._held[dataset] = held
            self._doubted = {key for key in self._doubted if key.dataset != dataset}
        if changed:
            self._save(dataset, held)

    def _renew_behind(self, dataset: str, origin: Origin) -> _Renewal | None:
        """The one that is under way, or a new one; none once all is closed."""
        with self._lock:
            renewal = self._renewing.get((dataset, origin.identity))
            if renewal is not None and time.monotonic() - renewal.moved_s > LOST * self._stall_s:
                renewal = None  # it is not waited for any more; what it may say yet is of no interest
            if renewal is None:
                if self._closed:
                    return None
                renewal = self._renewing[dataset, origin.identity] = _Renewal(origin)
                renewal.thread = threading.Thread(
                    target=self._run, args=(dataset, renewal), name="renew listing", daemon=True
                )
                renewal.thread.start()
            return renewal

    def _run(self, dataset: str, renewal: _Renewal) -> None:
        error: Exception | None = None
        try:
            self._renew(dataset, renewal)
        except Exception as trouble:  # noqa: BLE001 - whoever waits for it is told
            error = trouble
        with self._lock:
            if self._is_current(dataset, renewal):
                held = self._held.get(dataset)
                if error is not None and held is not None:  # the old one is as good as it gets; it is tried again later
                    self._held[dataset] = held._replace(at_s=time.monotonic() - self._relist_s + self._revalidate_s)
                del self._renewing[dataset, renewal.origin.identity]
        if error is None:
            renewal.done.set_result(None)
        else:
            renewal.done.set_exception(error)

    def _is_current(self, dataset: str, renewal: _Renewal) -> bool:
        """Or another has taken its place. With the lock."""
        return self._renewing.get((dataset, renewal.origin.identity)) is renewal

    def _file(self, dataset: str) -> Path:
        return self._directory / f"{blake2b(dataset.encode(), digest_size=16).hexdigest()}.listing"

    def _save(self, dataset: str, held: _Held) -> None:
        """Best effort: without it, the next start has to list again."""
        file = self._file(dataset)
        fresh = file.with_suffix(f".{threading.get_ident()}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh.write_bytes(msgspec.msgpack.encode(_Saved(held.origin, list(held.listing))))
            fresh.replace(file)
        except OSError:
            fresh.unlink(missing_ok=True)

    def _loaded(self, dataset: str, origin: Origin) -> _Held | None:
        try:
            saved = msgspec.msgpack.decode(self._file(dataset).read_bytes(), type=_Saved)
        except (OSError, msgspec.MsgspecError):
            return None
        if saved.origin != origin.identity:
            return None
        held = _Held(Listing(saved.files), float("-inf"), saved.origin)
        with self._lock:
            newer = self._held.get(dataset)
            if newer is not None and newer.origin == saved.origin:
                return newer
            self._held[dataset] = held
        return held
