"""The interface of a node's cache: the cache, and handles on its files.

Every method may be called from any thread. None but `stat` and `listing` waits for an origin.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from aliquot.storage.cache.futures import TransferFuture
from aliquot.storage.cache.listings.listing import Listing
from aliquot.storage.cache.records import CacheStats, FetchResult, Urgency, WarmOutcome
from aliquot.storage.records import FileKey, Found, Listed

# Called with the files here, all files, the bytes here, all bytes.
WarmProgress: TypeAlias = Callable[[int, int, int, int], None]


class FileHandle(Protocol):
    """An open file of the cache. Until it is closed, all its bytes are of one version and stay available."""

    @property
    def key(self) -> FileKey: ...
    @property
    def listed(self) -> Listed: ...
    @property
    def found(self) -> Found: ...
    @property
    def waited_s(self) -> float:
        """Return the time from the request until the file could be read."""

    @property
    def fd(self) -> int | None:
        """Return a descriptor for reading the whole, verified file. None while parts are missing.

        It is closed by `close`.
        """

    def read(self, offset: int, length: int) -> TransferFuture[bytes]:
        """Read bytes, fewer only at the end of the file.

        Waits only for the chunks that hold them. A sequential reader has the next chunks fetched ahead.
        """

    def close(self) -> None:
        """Close the handle. Closing twice is harmless, and a garbage-collected handle closes itself."""


class Cache(Protocol):
    """The files of datasets on a node's disk."""

    def has(self, key: FileKey) -> bool:
        """Return whether the whole file is in the cache, without asking its origin."""

    def try_open(self, key: FileKey) -> FileHandle | None:
        """Open a file at once if it is cached and need not be checked with its origin.

        None: call `open`, which fetches or checks the file, or fails with the reason.
        """

    def open(self, key: FileKey) -> TransferFuture[FileHandle]:
        """Open a file, and fetch it first if necessary.

        A large file, or one for which there is no space, is opened before it is whole and read as it arrives.
        """

    def fetch(self, key: FileKey, *, urgency: Urgency = Urgency.PREFETCH) -> TransferFuture[FetchResult]:
        """Fetch a whole file, by one transfer for all callers. `RoomError` if the cache cannot hold it."""

    def stat(self, key: FileKey) -> Listed:
        """Return the file's version from the listing, or from its origin if the listing is too old.

        Raises `AbsentError` or `OriginError`.
        """

    def listing(self, dataset: str) -> Listing:
        """Return the known listing of a dataset, which survives restarts and is renewed in the background.

        Only the first one waits for the origin.
        """

    def warm(
        self, dataset: str, patterns: Sequence[str] = (), progress: WarmProgress | None = None
    ) -> TransferFuture[WarmOutcome]:
        """Fetch every file that matches. `progress` is called from another thread, a few times a second."""

    def remove(self, dataset: str) -> None:
        """Drop all files of a dataset. Open files stay readable, and running transfers fail."""

    def empty(self, dataset: str | None = None) -> int:
        """Drop all unused files, of one dataset or of all, and return their bytes."""

    def verify(self, dataset: str | None = None) -> list[FileKey]:
        """Read every whole file again. Drop and return those that differ from what was fetched."""

    def stats(self) -> CacheStats:
        """Return a copy of the current counters."""

    def close(self) -> None:
        """Fail all transfers and close the cache. Whole files are kept for the next start."""
