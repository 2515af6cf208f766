"""One file being fetched: the requests that wait for it, the chunks it still needs, and its next step."""

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from aliquot.storage.cache.records import Urgency
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.cache.transfers.parallelism import ChunkParallelism
from aliquot.storage.records import FileKey


class TransferOrigin(Protocol):
    """An origin as transfers see it. Workers get back the object that the request came with."""

    @property
    def identity(self) -> str:
        """Return an id that differs between origins with different files."""

    @property
    def link(self) -> str:
        """Return the name of the host or disk whose bandwidth it shares with other origins."""


class FileRequest:
    """A caller that waits for a whole file in the cache, or for a handle on it."""

    def __init__(self, key: FileKey, origin: TransferOrigin, urgency: Urgency, *, opens: bool, now: float) -> None:
        self.key = key
        self.origin = origin
        self.urgency = urgency
        self.opens = opens
        self.since_s = now
        self._moved: Callable[[], int] = int
        self._moved_before = 0

    def follow(self, moved_bytes: Callable[[], int]) -> None:
        """Count the bytes of another transfer from now on, in addition to those counted so far."""
        self._moved_before = moved_bytes() - self.moved_bytes
        self._moved = moved_bytes

    @property
    def moved_bytes(self) -> int:
        """Return how many bytes came over the link for the file since the request, useful or not."""
        return self._moved() - self._moved_before


class ReadRequest:
    """A caller that waits for a part of a file that it has open."""

    def __init__(self, key: FileKey, origin: TransferOrigin, offset: int, length: int) -> None:
        self.key = key
        self.origin = origin
        self.offset = offset
        self.length = length


class TransferState(Enum):
    """The states of a transfer. `machine.py` shows the transitions."""

    ASKING = auto()  # the version at the origin is not known yet
    MOVING = auto()  # chunks are being fetched, or a cached file is given out
    COMPLETE = auto()  # all chunks are on disk, to be verified and moved to their place


class StepKind(Enum):
    """The kinds of steps that a worker performs for a transfer."""

    ASK = auto()  # ask the origin for the file's version
    CHUNK = auto()  # fetch one chunk
    COPY = auto()  # fetch the whole file at once, from an origin that cannot send parts
    CONFIRM = auto()  # ask the origin whether it still has this version, so that readers may have the chunks
    COMMIT = auto()  # verify the complete file and move it to its place


class TransferStep(NamedTuple):
    """One piece of work for one worker."""

    transfer: "Transfer"
    attempt: int  # of the transfer, when the step was chosen
    kind: StepKind
    chunk: int = -1

    @property
    def is_current(self) -> bool:
        """Return whether its outcome still matters. A restarted or ended transfer ignores earlier steps."""
        return self.attempt == self.transfer.attempt


class Transfer:
    """The state of one transfer. Steps are chosen by `next_step` and take effect with `begin`."""

    def __init__(
        self, key: FileKey, origin: TransferOrigin, number: int, parallelism: ChunkParallelism, *, now: float
    ) -> None:
        self.key = key
        self.origin = origin
        self.link = origin.link
        self.number = number  # in order of arrival
        self.started_s = now
        self.not_before_s = now  # no step starts earlier
        self.state = TransferState.ASKING
        self.attempt = 0
        self.failures = 0  # in a row
        self.changes = 0  # how often the file changed at its origin during the transfer
        self.spoiled = 0  # how often a complete file turned out to be useless
        self.entry: CacheEntry | None = None
        self.ranged = True  # the origin can send parts of the file
        self.must_ask = False  # the listing's version is not enough
        self.is_asked = False  # the version is the origin's own answer, not the listing's
        self.was_fetched = False  # the file was not in the cache when the version became known
        self.is_reserved = False  # space is reserved for the whole file
        self.waiting: list[FileRequest] = []
        self.readers: list[ReadRequest] = []
        self.wanted: OrderedDict[int, None] = OrderedDict()  # chunks to fetch, in this order
        self.running: set[TransferStep] = set()
        self.copied_bytes = 0  # by a running copy
        self.moved_bytes = 0  # over the link, useful or not
        self._parallelism = parallelism  # of its link
        self._half_arrived: set[TransferStep] = set()  # running steps with more than half of their chunk arrived

    @property
    def urgency(self) -> Urgency:
        if self.readers or not self.waiting:  # without requests it reads ahead for a reader
            return Urgency.DEMAND
        return min(request.urgency for request in self.waiting)

    @property
    def is_for_prediction(self) -> bool:
        return (
            bool(self.waiting)
            and not self.readers
            and all(request.urgency is Urgency.PREFETCH for request in self.waiting)
        )

    @property
    def has_work(self) -> bool:
        """Return whether a step is running or still to be done."""
        is_running = any(step.is_current for step in self.running)
        return bool(self.wanted) or is_running or self.state is TransferState.COMPLETE

    @property
    def arrived_bytes(self) -> int:
        if self.entry is None:
            return 0
        return max(self.copied_bytes, min(len(self.entry.digests) * self.entry.chunk_bytes, self.entry.listed.size))

    def next_step(self, *, now: float) -> TransferStep | None:
        """Return the step that a worker could do now, without starting it."""
        if now < self.not_before_s:
            return None
        if self.state is TransferState.ASKING:
            return self._unless_running(StepKind.ASK)
        if self.state is TransferState.COMPLETE:
            return self._unless_running(StepKind.COMMIT)
        if (
            self.readers
            and self.entry is not None
            and self.entry.unconfirmed
            and not self._is_running(StepKind.CONFIRM)
        ):
            return TransferStep(self, self.attempt, StepKind.CONFIRM)
        if not self.wanted:
            return None
        if not self.ranged:
            return self._unless_running(StepKind.COPY)
        chunk = self._next_chunk()
        return None if chunk is None else TransferStep(self, self.attempt, StepKind.CHUNK, chunk)

    def _next_chunk(self) -> int | None:
        """Return the next chunk. Read-ahead waits for its turn, which comes before the last chunk is complete."""
        entry = self.entry
        if entry is None or not entry.pins or self._may_add_chunk():
            return next(iter(self.wanted))
        awaited = (chunk for reader in self.readers for chunk in entry.chunks_of(reader.offset, reader.length))
        return next((chunk for chunk in awaited if chunk in self.wanted), None)

    def _may_add_chunk(self) -> bool:
        early = self.running - self._half_arrived
        moving = sum(step.kind is StepKind.CHUNK and step.is_current for step in early)
        return moving < self._parallelism.chunks

    def _unless_running(self, kind: StepKind) -> TransferStep | None:
        return None if self._is_running(kind) else TransferStep(self, self.attempt, kind)

    def _is_running(self, kind: StepKind) -> bool:
        return any(step.kind is kind and step.is_current for step in self.running)

    def begin(self, step: TransferStep) -> None:
        self.running.add(step)
        self.wanted.pop(step.chunk, None)
        self._half_arrived.discard(step)  # left over from a failed try

    def half_arrived(self, step: TransferStep) -> None:
        """Note that more than half of a chunk has arrived, so that the next one may start."""
        self._half_arrived = {step, *(self._half_arrived & self.running)}

    def count_chunk(self, length: int, *, now: float) -> None:
        """Count an arrived chunk. It measures the link only while a reader wants more than has arrived."""
        if self.entry is not None and self.entry.pins and self.wanted:
            self._parallelism.arrived(self.number, length, now=now)
        else:
            self._parallelism.stop_measuring(self.number)

    def want(self, chunk: int, *, first: bool = False) -> None:
        """Add a chunk to those to fetch, unless it is on disk or being fetched."""
        if self.entry is None or chunk in self.entry.digests or self._is_moving(chunk):
            return
        self.wanted[chunk] = None
        if first:
            self.wanted.move_to_end(chunk, last=False)

    def _is_moving(self, chunk: int) -> bool:
        return any(step.chunk == chunk and step.is_current for step in self.running)

    def restart(self) -> None:
        """Go back to the beginning. Running steps no longer count."""
        self.attempt += 1
        self.state = TransferState.ASKING
        self.entry = None
        self.is_reserved = False
        self.wanted.clear()
        self.copied_bytes = 0

    def end(self) -> None:
        """Stop for good. Running steps no longer count."""
        self.attempt += 1
        self._parallelism.stop_measuring(self.number)
