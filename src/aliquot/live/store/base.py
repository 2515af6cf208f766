"""The interface of the store. `SqliteStore` implements it on one machine.

Each method gives one of three guarantees:

- *durable*: when the call returns, a crash of the process or the machine does not undo it.
- *behind*: written within milliseconds, in the order of the calls, in groups. A crash may lose the last of these
  writes, but never one from the middle.
- *read*: sees everything that is durable, and activations that were recorded behind.
"""

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from aliquot.core.units import GIB, KIB, MIB
from aliquot.histogram import LatencyHistogram
from aliquot.live.store.executions import (
    ExecutionChange,
    ExecutionQuery,
    ExecutionRow,
    OpenExecution,
    StoredExecution,
)
from aliquot.live.store.records import Accepted, Activation

MAX_PAGE_BYTES = 16 * MIB  # of responses and logs in a list
SMALL_PAYLOAD_BYTES = 4 * KIB  # a queued invocation with a larger payload leaves it on disk until it runs


class StoreError(Exception):
    """The store cannot do this now: the disk is full, or the file is locked or damaged.

    The message is for the operator and may contain paths. `public` is for tenants and contains none.
    """

    def __init__(self, text: str, public: str = "the platform cannot write to its store; try again later") -> None:
        super().__init__(text)
        self.public = public


class LargePageError(StoreError):
    """A page of activations has more bytes than may be read at once. The text says how to ask for less."""

    def __init__(self, size: int) -> None:
        text = (
            f"The activations of this page have {size} bytes, and at most {MAX_PAGE_BYTES} are read at once. Ask for "
            "fewer with 'limit', or without 'docs'."
        )
        super().__init__(text, text)


class StoreHealth:
    """The current ability to write. Every call reads it, so it has plain attributes."""

    __slots__ = ("behind", "problem")

    def __init__(self) -> None:
        self.problem: str | None = None  # why writes fail at present, in words for tenants, or None
        self.behind: dict[str, str] = {}  # by owner: why no more of its calls are taken until its records are written


class Document(Struct, frozen=True):
    """A small named value in a collection, such as a namespace or an action. Its owner also holds it in memory."""

    namespace: str
    name: str
    body: bytes


class Put(Struct, frozen=True):
    """A change that creates or replaces a document."""

    collection: str
    document: Document


class Delete(Struct, frozen=True):
    """A change that deletes a document, if it exists."""

    collection: str
    namespace: str
    name: str


DocumentChange: TypeAlias = Put | Delete


class ActivationQuery(Struct, frozen=True):
    owner: str
    name: str | None = None  # name of the action
    since: int | None = None  # earliest start, in ms since the epoch; both bounds are inclusive
    upto: int | None = None
    skip: int = 0
    limit: int = 30
    session: str | None = None
    summaries: bool = False  # leave out responses and logs, which may be large


class JournalEntry(Struct, frozen=True):
    """One entry of the journal. The first of a segment is a snapshot, the others are steps."""

    segment: int
    number: int  # position in the segment, from 0
    body: bytes


class Retention(Struct, frozen=True):
    """Limits on the age and size of stored history. The newest journal segment always stays."""

    activations_s: float = 7 * 86400
    activations_bytes: int = 4 * GIB  # of all tenants together
    activations_min_bytes: int = 64 * MIB  # of each tenant, if all of these fit
    journal_s: float = 7 * 86400
    journal_bytes: int = GIB


class Store(ABC):
    """Documents, activations, the queue of accepted invocations and the journal."""

    health: StoreHealth

    @property
    def commit_times(self) -> LatencyHistogram | None:
        """The durations of commits, or None if they are not measured."""
        return None

    # --- documents --------------------------------------------------------------------------------------

    @abstractmethod
    async def apply(self, changes: Sequence[DocumentChange]) -> None:
        """Apply all changes in one transaction. Durable."""

    async def put(self, collection: str, document: Document) -> None:
        """Create or replace a document. Durable."""
        await self.apply([Put(collection, document)])

    async def delete(self, collection: str, namespace: str, name: str) -> None:
        """Delete a document, if it exists. Durable."""
        await self.apply([Delete(collection, namespace, name)])

    @abstractmethod
    async def scan(self, collection: str) -> list[Document]:
        """Return all documents of a collection, sorted by namespace and name."""

    # --- activations ------------------------------------------------------------------------------------

    @abstractmethod
    def record(self, activation: Activation) -> None:
        """Add an activation. Behind, but readable at once."""

    @abstractmethod
    async def finish(self, activation: Activation) -> None:
        """Finish an accepted invocation: add its record and remove it from the queue in one transaction.

        Durable, and not readable earlier. If the id already has a record, that record stays.
        """

    @abstractmethod
    async def activation(self, owner: str, activation_id: str) -> Activation | None:
        """Return one activation of this owner."""

    @abstractmethod
    async def activations(self, query: ActivationQuery) -> list[Activation]:
        """Return one page of matching activations, latest start first. Raises `LargePageError`."""

    @abstractmethod
    async def count_activations(self, query: ActivationQuery) -> int:
        """Return the number of matching activations after the first `skip`. `limit` is ignored."""

    # --- the queue of accepted invocations --------------------------------------------------------------

    @abstractmethod
    async def accept(self, accepted: Accepted) -> None:
        """Add an invocation to the queue. Durable, so the caller may be answered afterwards."""

    @abstractmethod
    async def accept_all(self, accepted: Sequence[Accepted], record: Activation, event: bytes = b"") -> None:
        """Add the invocations of one event and the event's own record in one transaction. Durable.

        The event's body is stored once, for the invocations whose `event` is the record's id.
        """

    @abstractmethod
    async def count_start(self, activation_id: str) -> None:
        """Count the start of a sandbox for a queued invocation. Durable. The count is for a start that never ends."""

    @abstractmethod
    async def forget_starts(self, activation_id: str) -> None:
        """Set the count of starts to 0, because the server stops in order. `mark_started` does so, too. Durable."""

    @abstractmethod
    async def mark_started(self, activation_id: str) -> None:
        """Count a run of a queued invocation that begins. Durable. After a crash it runs again only if it may."""

    @abstractmethod
    async def unfinished(self) -> list[Accepted]:
        """Return accepted invocations without a record, in order of acceptance. The server reads them at start.

        A payload above `SMALL_PAYLOAD_BYTES` is left out, so that the queue may be larger than the memory.
        """

    @abstractmethod
    async def payload(self, activation_id: str) -> bytes | memoryview:
        """Return the payload of a queued invocation, or nothing if it is not in the queue."""

    # --- executions of workflows ------------------------------------------------------------------------

    @abstractmethod
    def write_execution(self, change: ExecutionChange) -> "Future[None]":
        """Write a step of an execution in one transaction. The future is done when it is durable.

        The next step of an execution is given after that of the step before. Raises `StoreError`.
        """

    @abstractmethod
    async def open_executions(self) -> list[OpenExecution]:
        """Return all executions that have not ended. The server reads them at start."""

    @abstractmethod
    async def execution(self, owner: str, execution_id: str) -> ExecutionRow | None:
        """Return the row of one execution of this owner."""

    @abstractmethod
    async def named_execution(self, owner: str, workflow: str, name: str) -> ExecutionRow | None:
        """Return the execution of a workflow that the caller has given this name."""

    @abstractmethod
    async def first_event(self, owner: str, execution_id: str) -> bytes:
        """Return the first row of the log of an execution."""

    @abstractmethod
    async def stored_execution(self, owner: str, execution_id: str) -> StoredExecution | None:
        """Return an execution with its definition and its log."""

    @abstractmethod
    async def execution_objects(self, owner: str, execution_id: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return objects of an execution of this owner, by their ids. Those that do not exist are left out."""

    @abstractmethod
    def reason_full(self, owner: str, size: int) -> str | None:
        """Return why a namespace may not keep so many bytes more, in words for tenants, or None if it may."""

    @abstractmethod
    async def executions(self, query: ExecutionQuery) -> list[ExecutionRow]:
        """Return one page of matching executions without their outcomes, latest start first."""

    @abstractmethod
    async def count_executions(self, query: ExecutionQuery) -> int:
        """Return the number of matching executions after the first `skip`. `limit` is ignored."""

    # --- the journal ------------------------------------------------------------------------------------

    @abstractmethod
    def open_segment(self, snapshot: bytes) -> None:
        """Begin a new journal segment. Behind."""

    @abstractmethod
    def journal(self, step: bytes) -> None:
        """Append an entry to the open segment. Behind."""

    @abstractmethod
    def read_journal(self) -> AsyncIterator[JournalEntry]:
        """Yield every durable entry, in order."""

    # --- housekeeping -----------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """The number of writes that are not on disk yet."""
        return 0

    @property
    def is_low_on_space(self) -> bool:
        """True if the disk is almost full, so that large bodies are refused."""
        return False

    def limit_kept_bytes(self, namespace: str, limit: int | None) -> None:
        """Set the limit on what is kept for a namespace, see `kept_bytes.py`. None means the default."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until every earlier write is durable. Raises `StoreError` if that fails."""

    @abstractmethod
    async def newest_ms(self) -> int | None:
        """Return the time of the last record or journal entry that was written, by the clock of then."""

    @abstractmethod
    async def prune(
        self, retention: Retention, *, now_ms: int | None, weights: Mapping[str, float] | None = None
    ) -> None:
        """Delete activations and journal segments that exceed the retention limits.

        Without `now_ms` nothing is deleted by age. The bytes of activations are divided among owners by `weights`.
        Owners without a weight no longer exist, and lose theirs first. Without `weights` all are equal.
        """

    @abstractmethod
    async def close(self) -> None:
        """Flush, then release the file."""
