"""One version of one file in the cache: whole, or the chunks that have arrived so far."""

from hashlib import blake2b
from typing import NamedTuple

from aliquot.storage.records import FileKey, Listed


class SavedState(NamedTuple):
    """The state of a whole file that survives a restart."""

    digests: list[bytes]  # of all chunks
    disk_bytes: int
    reload_s: float
    opens: int
    trusted: bool


class CacheEntry:
    """The state of a cached file and of its chunks. Eviction policies see `id`, `bytes`, `uses` and `reload_s`.

    `file` belongs to the creator of the entry. Nothing in this package reads it. With `saved` the file is whole,
    otherwise no chunk of it is here.
    """

    def __init__(
        self, key: FileKey, listed: Listed, origin: str, file: object, chunk_bytes: int, saved: SavedState | None = None
    ) -> None:
        self.key = key
        self.listed = listed
        self.origin = origin  # identity of the origin
        self.file = file
        self.chunk_bytes = chunk_bytes
        self.digests = dict(enumerate(saved.digests)) if saved is not None else {}  # of the chunks on disk
        self.unconfirmed: set[int] = set()  # chunks on disk that are valid only if the origin still has this version
        self.holes: set[int] = set()  # chunks on disk that are all zeros and take no space
        self.written: set[int] = set()  # chunks whose place on disk may hold bytes of a failed attempt
        self.whole = saved is not None
        # False: written before the machine's last boot, to be compared with its digests before use.
        self.trusted = saved is None or saved.trusted
        self.dropped = False  # it has left the cache; only open handles still see it
        self.pins = 0  # open handles
        self.busy = False  # a transfer uses it
        self.idle = False  # it may be evicted
        self.disk_bytes = saved.disk_bytes if saved is not None else 0
        self.reserved_bytes = 0
        self.freed_count = 0  # how many chunks have been freed again
        self.predicted = False  # fetched for a prediction and not opened since
        self.checked_s = float("-inf")  # when its origin last confirmed this version
        self.reload_s = saved.reload_s if saved is not None else 0.0  # how long its transfer took
        self.opens = saved.opens if saved is not None else 0
        self._last_use_s: float | None = None  # since the process started
        self._gap_s: float | None = None
        # The same for a file at any time, because policies remember files that come back.
        self.id = int.from_bytes(blake2b(str(key).encode(), digest_size=7).digest(), "big")

    @property
    def bytes(self) -> int:
        return self.disk_bytes

    @property
    def uses(self) -> int:
        """The number of opens, but at least one. Otherwise prefetched files would be evicted first."""
        return max(1, self.opens)

    @property
    def chunk_count(self) -> int:
        return -(-self.listed.size // self.chunk_bytes)

    @property
    def complete(self) -> bool:
        return len(self.digests) == self.chunk_count

    def used(self, now: float) -> None:
        if self._last_use_s is not None:
            gap = now - self._last_use_s
            self._gap_s = gap if self._gap_s is None else (self._gap_s + gap) / 2
        self.opens += 1
        self._last_use_s = now

    def next_use_s(self, now: float) -> float | None:
        """Estimate the time until the next use: the mean gap between uses, or the time since the last if longer."""
        if self._gap_s is None or self._last_use_s is None:
            return None
        return max(self._gap_s - (now - self._last_use_s), now - self._last_use_s, 0.0)

    def is_version(self, listed: Listed, origin: str) -> bool:
        return not self.dropped and (self.origin, self.listed.version, self.listed.size) == (
            origin,
            listed.version,
            listed.size,
        )

    def span(self, chunk: int) -> tuple[int, int]:
        """Return the offset and the length of a chunk."""
        start = chunk * self.chunk_bytes
        return start, min(self.chunk_bytes, self.listed.size - start)

    def chunks_of(self, offset: int, length: int) -> range:
        end = min(offset + length, self.listed.size)
        return range(offset // self.chunk_bytes, max(-(-end // self.chunk_bytes), offset // self.chunk_bytes))

    def has(self, offset: int, length: int) -> bool:
        """Return whether these bytes are on disk and confirmed, so that a reader may have them."""
        chunks = self.chunks_of(offset, length)
        return self.whole or all(chunk in self.digests and chunk not in self.unconfirmed for chunk in chunks)

    def missing(self) -> list[int]:
        return [chunk for chunk in range(self.chunk_count) if chunk not in self.digests]
