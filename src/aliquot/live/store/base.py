"""The store's interface: SQLite keeps it on one machine, others may elsewhere.

Three strengths of promise, and each method says which it gives:

- *durable*: when the call returns, a crash of the process or the machine does not undo it;
- *behind*: written within milliseconds, together with others (group commit), in the order of the calls; a crash may
  lose the last of them, never one from the middle;
- *read*: sees all that is durable, and what was recorded behind.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from aliquot.core.units import GIB
from aliquot.live.store.records import Accepted, Activation


class StoreError(Exception):
    """The store cannot do what was asked now: the disk is full, the file is locked or damaged. The text says which."""


class StoreHealth:
    """Whether the store can write. It is read for every call, so it is a plain attribute."""

    __slots__ = ("complaint",)

    def __init__(self) -> None:
        self.complaint: str | None = None  # why writing fails at present, or None


class Document(Struct, frozen=True):
    """A small thing that its owner keeps in memory too: a namespace, an action."""

    namespace: str
    name: str
    body: bytes


class Put(Struct, frozen=True):
    """Create or replace it."""

    collection: str
    document: Document


class Delete(Struct, frozen=True):
    """Nothing happens when it is not there."""

    collection: str
    namespace: str
    name: str


Change: TypeAlias = Put | Delete


class ActivationQuery(Struct, frozen=True):
    namespace: str
    name: str | None = None  # of the action
    since: int | None = None  # epoch ms of the start, inclusive, as `upto`
    upto: int | None = None
    skip: int = 0
    limit: int = 30
    session: str | None = None


class JournalEntry(Struct, frozen=True):
    """One entry: a segment begins with a snapshot, steps follow."""

    segment: int
    number: int  # within the segment, from 0
    body: bytes


class Retention(Struct, frozen=True):
    """How much of the past is kept. The newest journal segment always stays."""

    activations_s: float = 7 * 86400
    activations_bytes: int = 4 * GIB
    journal_s: float = 7 * 86400
    journal_bytes: int = GIB


class Store(ABC):
    health: StoreHealth
    # --- documents --------------------------------------------------------------------------------------

    @abstractmethod
    async def apply(self, changes: Sequence[Change]) -> None:
        """All of them or none, whatever happens: one transaction. Durable."""

    async def put(self, collection: str, document: Document) -> None:
        """Create or replace. Durable."""
        await self.apply([Put(collection, document)])

    async def delete(self, collection: str, namespace: str, name: str) -> None:
        """Durable. Nothing happens when it is not there."""
        await self.apply([Delete(collection, namespace, name)])

    @abstractmethod
    async def scan(self, collection: str) -> list[Document]:
        """All of them, by namespace and name."""

    # --- activations ------------------------------------------------------------------------------------

    @abstractmethod
    def record(self, activation: Activation) -> None:
        """Behind, but readable at once."""

    @abstractmethod
    async def finish(self, activation: Activation) -> None:
        """The end of an accepted invocation: its record comes and its place in the queue goes, in one transaction.

        Durable, and not readable before it is. The first end stands: a second one for the same id changes nothing.
        """

    @abstractmethod
    async def activation(self, namespace: str, activation_id: str) -> Activation | None: ...

    @abstractmethod
    async def activations(self, query: ActivationQuery) -> list[Activation]:
        """Newest start first."""

    @abstractmethod
    async def count_activations(self, query: ActivationQuery) -> int:
        """How many there are after `skip`; `limit` is not looked at."""

    # --- the queue of accepted invocations --------------------------------------------------------------

    @abstractmethod
    async def accept(self, accepted: Accepted) -> None:
        """Durable: now it may be acknowledged."""

    @abstractmethod
    async def accept_all(self, accepted: Sequence[Accepted], record: Activation) -> None:
        """Invocations and the record of what set them off, in one transaction: all of it or nothing. Durable."""

    @abstractmethod
    async def mark_started(self, activation_id: str) -> None:
        """Durable: it must not run a second time unless it may."""

    @abstractmethod
    async def unfinished(self) -> list[Accepted]:
        """What was accepted and has no record yet, in order of acceptance; read at start."""

    # --- the journal ------------------------------------------------------------------------------------

    @abstractmethod
    def open_segment(self, snapshot: bytes) -> None:
        """Begin a new journal segment. Behind."""

    @abstractmethod
    def journal(self, step: bytes) -> None:
        """The next entry of the open segment. Behind."""

    @abstractmethod
    def read_journal(self) -> AsyncIterator[JournalEntry]:
        """Every entry that is durable, in order."""

    # --- housekeeping -----------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """How many writes wait for the disk."""
        return 0

    @abstractmethod
    async def flush(self) -> None:
        """Durable: all that was written before. Raises `StoreError` if it cannot be."""

    @abstractmethod
    async def prune(self, retention: Retention, *, now_ms: int) -> None:
        """Forget what is too old or too much."""

    @abstractmethod
    async def close(self) -> None:
        """Flush and let go."""
