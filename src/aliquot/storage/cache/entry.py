"""One version of one file in the cache: whole, or as many chunks of it as have arrived."""

from hashlib import blake2b

from aliquot.storage.cache.body import Body
from aliquot.storage.records import FileKey, Listed


class Entry:
    """What an eviction policy sees of a cached file, and the books about its chunks."""

    def __init__(self, key: FileKey, listed: Listed, origin: str, body: Body, chunk_bytes: int) -> None:
        self.key = key
        self.listed = listed
        self.origin = origin  # the identity of where it is from
        self.body = body
        self.chunk_bytes = chunk_bytes
        self.digests: dict[int, bytes] = {}  # of the chunks that are here
        self.doubtful: set[int] = set()  # of these, those that are of this version only if the origin still has it
        self.holes: set[int] = set()  # of these, those that are all zeros: they take no room
        self.touched: set[int] = set()  # chunks that were begun: what is there may be of a try that failed
        self.whole = False
        self.trusted = True  # False: written before the machine's last start; to be read and compared before use
        self.gone = False  # no more in the cache: only who has it open sees it
        self.pins = 0  # handles
        self.busy = False  # a transfer has to do with it
        self.idle = False  # it may go
        self.disk_bytes = 0
        self.reserved_bytes = 0
        self.punched = 0  # how often chunks were taken away again
        self.predicted = False  # brought for a prediction, and not opened since
        self.checked_s = float("-inf")  # when its origin was last heard to have this version
        self.reload_s = 0.0
        self.opens = 0
        self._last_use_s: float | None = None  # since the start
        self._gap_s: float | None = None
        # The same for the same file at any time: policies remember who came back.
        self.id = int.from_bytes(blake2b(str(key).encode(), digest_size=7).digest(), "big")

    @property
    def bytes(self) -> int:
        return self.disk_bytes

    @property
    def uses(self) -> int:
        """What was brought is to be used once at least, or what comes ahead of its use would be the first to go."""
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
        """As long again as between its last uses, or as long as it has been left alone if that is longer."""
        if self._gap_s is None or self._last_use_s is None:
            return None
        return max(self._gap_s - (now - self._last_use_s), now - self._last_use_s, 0.0)

    def is_of(self, listed: Listed, origin: str) -> bool:
        return not self.gone and (self.origin, self.listed.version, self.listed.size) == (
            origin,
            listed.version,
            listed.size,
        )

    def span(self, chunk: int) -> tuple[int, int]:
        """Where the chunk begins, and how long it is."""
        start = chunk * self.chunk_bytes
        return start, min(self.chunk_bytes, self.listed.size - start)

    def chunks_of(self, offset: int, length: int) -> range:
        end = min(offset + length, self.listed.size)
        return range(offset // self.chunk_bytes, max(-(-end // self.chunk_bytes), offset // self.chunk_bytes))

    def has(self, offset: int, length: int) -> bool:
        """Whether these bytes are here and may be given to somebody."""
        chunks = self.chunks_of(offset, length)
        return self.whole or all(chunk in self.digests and chunk not in self.doubtful for chunk in chunks)

    def missing(self) -> list[int]:
        return [chunk for chunk in range(self.chunk_count) if chunk not in self.digests]
