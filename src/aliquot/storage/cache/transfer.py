"""One file on its way: who waits for it, which chunks are wanted, and what is to be done next. Only books, no I/O."""

from collections import OrderedDict
from enum import Enum, auto
from typing import Any, NamedTuple

from aliquot.storage.cache.base import Urgency
from aliquot.storage.cache.entry import Entry
from aliquot.storage.cache.lanes import Lanes
from aliquot.storage.cache.ticket import Claim
from aliquot.storage.origins.base import Origin
from aliquot.storage.records import FileKey


class Waiter(NamedTuple):
    """For the whole file, or for a handle on it."""

    claim: Claim[Any]  # of `Fetched`, or of a handle
    opens: bool
    since_s: float
    origin: Origin


class Reader(NamedTuple):
    """For a part, through a handle."""

    claim: Claim[bytes]
    offset: int
    length: int


class State(Enum):
    ASKING = auto()  # the origin is to say which version it has
    MOVING = auto()
    COMPLETE = auto()  # all has arrived: it is to be verified and put in its place


class Kind(Enum):
    ASK = auto()
    CHUNK = auto()
    COPY = auto()
    CONFIRM = auto()  # that the origin still has this version: then what has come may be read
    COMMIT = auto()


class Step(NamedTuple):
    """What one worker does at a time."""

    transfer: "Transfer"
    attempt: int  # of the transfer, when the step was chosen: what comes of an earlier one is of no interest
    kind: Kind
    chunk: int = -1


class Transfer:
    def __init__(self, key: FileKey, origin: Origin, number: int, lanes: Lanes, *, now: float) -> None:
        self.key = key
        self.origin = origin
        self.link = origin.link
        self._lanes = lanes  # of its link
        self.number = number  # in order of arrival
        self.started_s = now
        self.not_before_s = now
        self.state = State.ASKING
        self.attempt = 0
        self.failures = 0
        self.changes = 0
        self.spoiled = 0  # how often it had come in vain
        self.entry: Entry | None = None
        self.ranged = True
        self.must_ask = False  # what the listing says of it is not enough
        self.is_asked = False  # the origin itself has said which version it has
        self.brought = False  # it was not here when the origin was asked
        self.whole = False  # room is set aside for all of it
        self.waiting: list[Waiter] = []
        self.readers: list[Reader] = []
        self.wanted: OrderedDict[int, None] = OrderedDict()
        self.running: set[Step] = set()
        self._mostly_here: set[Step] = set()  # of these, chunks of which the larger part has come
        self.copied_bytes = 0  # of a copy that is under way
        self.moved_bytes = 0  # over the link, in vain or not

    @property
    def urgency(self) -> Urgency:
        if self.readers or not self.waiting:  # what is read ahead is for somebody who reads
            return Urgency.DEMAND
        return min(waiter.claim.urgency for waiter in self.waiting)

    @property
    def is_for_prediction(self) -> bool:
        return (
            bool(self.waiting)
            and not self.readers
            and all(waiter.claim.urgency is Urgency.PREFETCH for waiter in self.waiting)
        )

    @property
    def has_work(self) -> bool:
        """Whether something is to be done for it, or is being done."""
        under_way = any(step.attempt == self.attempt for step in self.running)
        return bool(self.wanted) or under_way or self.state is State.COMPLETE

    @property
    def arrived_bytes(self) -> int:
        if self.entry is None:
            return 0
        return max(self.copied_bytes, min(len(self.entry.digests) * self.entry.chunk_bytes, self.entry.listed.size))

    def next_step(self, *, now: float) -> Step | None:
        """What a worker could do for it now. No side effects."""
        if now < self.not_before_s:
            return None
        if self.state is State.ASKING:
            return None if self._runs(Kind.ASK) else Step(self, self.attempt, Kind.ASK)
        if self.state is State.COMPLETE:
            return None if self._runs(Kind.COMMIT) else Step(self, self.attempt, Kind.COMMIT)
        if self.readers and self.entry is not None and self.entry.doubtful and not self._runs(Kind.CONFIRM):
            return Step(self, self.attempt, Kind.CONFIRM)
        if not self.wanted:
            return None
        if not self.ranged:
            return None if self._runs(Kind.COPY) else Step(self, self.attempt, Kind.COPY)
        chunk = self._next_chunk()
        return None if chunk is None else Step(self, self.attempt, Kind.CHUNK, chunk)

    def _next_chunk(self) -> int | None:
        """What is read ahead waits for its turn, which comes before the last is all here: no link stands idle."""
        entry = self.entry
        if entry is None or not entry.pins or self._has_lane():  # nobody reads it as it comes, or it is its turn
            return next(iter(self.wanted))
        awaited = (chunk for reader in self.readers for chunk in entry.chunks_of(reader.offset, reader.length))
        return next((chunk for chunk in awaited if chunk in self.wanted), None)

    def _has_lane(self) -> bool:
        early = self.running - self._mostly_here
        moving = sum(step.kind is Kind.CHUNK and step.attempt == self.attempt for step in early)
        return moving < self._lanes.number

    def begin(self, step: Step) -> None:
        """It is under way from now on."""
        self.running.add(step)
        self.wanted.pop(step.chunk, None)
        self._mostly_here.discard(step)  # of an earlier try

    def comes_on(self, step: Step) -> None:
        """The larger part of a chunk has come."""
        self._mostly_here = {step, *(self._mostly_here & self.running)}

    def count_chunk(self, length: int, *, now: float) -> None:
        """One has come. What is read faster than it comes says how fast the link is."""
        if self.entry is not None and self.entry.pins and self.wanted:
            self._lanes.arrived(self.number, length, now=now)
        else:
            self._lanes.left(self.number)

    def ended(self) -> None:
        """Nobody wants anything of it any more: what is still under way is of no interest."""
        self.attempt += 1
        self._lanes.left(self.number)

    def _runs(self, kind: Kind) -> bool:
        return any(step.kind is kind and step.attempt == self.attempt for step in self.running)

    def want(self, chunk: int, *, first: bool = False) -> None:
        """It is to be brought, if it is neither here nor on its way."""
        if self.entry is None or chunk in self.entry.digests or self._is_moving(chunk):
            return
        self.wanted[chunk] = None
        if first:
            self.wanted.move_to_end(chunk, last=False)

    def _is_moving(self, chunk: int) -> bool:
        return any(step.chunk == chunk and step.attempt == self.attempt for step in self.running)

    def restart(self) -> None:
        """From the beginning; what is under way does not count."""
        self.attempt += 1
        self.state = State.ASKING
        self.entry = None
        self.whole = False
        self.wanted.clear()
        self.copied_bytes = 0
