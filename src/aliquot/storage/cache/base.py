"""What others see of a node's cache: tickets for files on their way, handles on those that are here, the cache.

Every method may be called from any thread; none but `stat` and `listing` waits for an origin. A ticket is a
`concurrent.futures.Future`: a thread calls `result()`, a coroutine awaits `asyncio.wrap_future(ticket)`.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import IntEnum
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.storage.cache.listing import Listing
from aliquot.storage.records import FileKey, Found, Listed

T = TypeVar("T")


class Urgency(IntEnum):
    """Who goes first, chunk by chunk: while something is demanded of an origin, nothing else begins there."""

    DEMAND = 0  # somebody waits for it
    WARM = 1  # somebody asked for it, ahead of use
    PREFETCH = 2  # predicted: within the bandwidth budget


class CacheSettings(Struct, frozen=True):
    limit_bytes: int
    eviction: str = "lecar"
    chunk_bytes: int = 4 * MIB
    whole_bytes: int = 64 * MIB  # an open of more than this does not wait for all of it: it is read as it arrives
    workers: int = 8  # transfers of chunks at once; half of them at most for what nobody waits for
    prefetch_bytes_per_s: int | None = None  # None: as fast as it goes; 0: no prefetches
    revalidate_s: float = 5.0  # a file is not asked after more often than this
    relist_s: float = 60.0  # nor is a whole dataset listed again
    patience_s: float = 2.0  # after which a cached file is served although its origin has not said that it is the same
    stall_s: float = 60.0  # after which an origin that has not answered is given up


class TransferFuture(Future[T]):
    """One caller's claim on something that is on its way; the last to cancel stops the transfer at the next chunk.

    It ends with a result, with a `StorageError` or `PathError`, or cancelled.
    """

    @property
    @abstractmethod
    def moved_bytes(self) -> int:
        """That came over the link for its file since it was asked for, also when it was cancelled."""

    @abstractmethod
    def promote(self, urgency: Urgency = Urgency.DEMAND) -> None:
        """From now on it is as urgent as that; never less than it was."""


class FetchResult(Struct, frozen=True):
    """The file is in the cache, whole and verified."""

    listed: Listed
    found: Found
    seconds: float  # since it was asked for


class FileHandle(Protocol):
    """A file that stays in the cache until it is closed, in one version from first to last byte."""

    @property
    def key(self) -> FileKey: ...
    @property
    def listed(self) -> Listed: ...
    @property
    def found(self) -> Found: ...
    @property
    def waited_s(self) -> float:
        """From the call of `open` until it could be read."""

    @property
    def fd(self) -> int | None:
        """Of the whole, verified file, for reading; None while some of it is not here. Closed by `close`."""

    def read(self, offset: int, length: int) -> TransferFuture[bytes]:
        """These bytes, fewer only at the end of the file; waits for their chunks alone, reads ahead if in order."""

    def close(self) -> None:
        """Twice does no harm. A handle that is dropped closes itself."""


WarmProgress: TypeAlias = Callable[[int, int, int, int], None]  # files here, of files, bytes here, of bytes


class WarmResult(Struct, frozen=True):
    files: int
    bytes: int
    failed: int = 0
    error: str = ""  # of the first that failed


class DatasetStats(Struct):
    files: int = 0  # whole, here
    bytes: int = 0  # on this node's disk
    hits: int = 0  # opens that found it here, or on its way because it was predicted
    misses: int = 0
    fetched_bytes: int = 0
    prefetched_bytes: int = 0  # of these, for predictions
    evicted: int = 0
    evicted_bytes: int = 0
    in_flight: int = 0
    unchecked: int = 0  # served although the origin could not be asked whether it has changed
    refetched: int = 0  # because the origin's had changed


class CacheStats(Struct):
    limit_bytes: int
    used_bytes: int  # on disk, or set aside for what is on its way
    open: int  # handles
    in_flight: int  # files
    datasets: dict[str, DatasetStats]


class Cache(Protocol):
    def has(self, key: FileKey) -> bool:
        """Whether it is here, whole, as far as is known without asking. At once."""

    def fetch(self, key: FileKey, *, urgency: Urgency = Urgency.PREFETCH) -> TransferFuture[FetchResult]:
        """Bring it, whole. One transfer however many ask; more than the cache can hold ends in `RoomError`."""

    def open(self, key: FileKey) -> TransferFuture[FileHandle]:
        """Bring it because somebody waits: whole, or as it arrives if it is large or there is no room for all of it."""

    def stat(self, key: FileKey) -> Listed:
        """From the listing, or from the origin (then it waits) where that is too old. `AbsentError`, `OriginError`."""

    def listing(self, dataset: str) -> Listing:
        """Remembered, also over a restart. The first one waits for the origin; later ones are renewed behind."""

    def warm(
        self, dataset: str, patterns: Sequence[str] = (), told: WarmProgress | None = None
    ) -> TransferFuture[WarmResult]:
        """Bring every file that matches; `told` is called from another thread, several times a second at most."""

    def remove(self, dataset: str) -> None:
        """All of it leaves the cache; what is open stays readable, what is on its way ends in an error."""

    def empty(self, dataset: str | None = None) -> int:
        """All that nobody uses leaves the cache, of one dataset or of all; how many bytes that is."""

    def verify(self, dataset: str | None = None) -> list[FileKey]:
        """Read every whole file again and drop those that are not what was fetched: these."""

    def stats(self) -> CacheStats:
        """Of now; a copy."""

    def close(self) -> None:
        """Nothing is on its way any more; what is here is found again by the next one."""
