"""A store in memory for tests. It has the same guarantees as real stores, and can simulate failures."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec.structs import replace

from aliquot.live.store.base import (
    SMALL_PAYLOAD_BYTES,
    ActivationQuery,
    Document,
    DocumentChange,
    JournalEntry,
    Put,
    Retention,
    Store,
    StoreError,
    StoreHealth,
)
from aliquot.live.store.executions import (
    ExecutionChange,
    ExecutionQuery,
    ExecutionRow,
    OpenExecution,
    StoredExecution,
)
from aliquot.live.store.fair_shares import fair_shares
from aliquot.live.store.reads import matches, newest_first
from aliquot.live.store.records import Accepted, Activation
from aliquot.testing.execution_store import MemoryExecutions


class MemoryStore(Store):
    """Implements `Store` with dictionaries. Every write takes effect at once."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str, str], Document] = {}
        self._activations: dict[str, Activation] = {}  # in order of recording
        self._queue: dict[str, Accepted] = {}
        self._events: dict[str, bytes] = {}
        self._journal: list[JournalEntry] = []
        self._executions = MemoryExecutions()
        self.health = StoreHealth()

    def fail(self, problem: str | None) -> None:
        """Refuse durable writes with this text from now on, or accept them again after None."""
        self.health.problem = problem

    def _check(self) -> None:
        if self.health.problem is not None:
            raise StoreError(self.health.problem, self.health.problem)

    # --- documents --------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[DocumentChange]) -> None:
        self._check()
        for change in changes:
            if isinstance(change, Put):
                document = change.document
                self._documents[change.collection, document.namespace, document.name] = document
            else:
                self._documents.pop((change.collection, change.namespace, change.name), None)

    async def scan(self, collection: str) -> list[Document]:
        return [self._documents[key] for key in sorted(self._documents) if key[0] == collection]

    # --- activations ------------------------------------------------------------------------------------

    def record(self, activation: Activation) -> None:
        self._activations.setdefault(activation.id, activation)

    async def finish(self, activation: Activation) -> None:
        self._check()
        self.record(activation)
        self._queue.pop(activation.id, None)

    async def activation(self, owner: str, activation_id: str) -> Activation | None:
        found = self._activations.get(activation_id)
        return found if found is not None and found.owner == owner else None

    async def activations(self, query: ActivationQuery) -> list[Activation]:
        return newest_first(self._matching(query))[query.skip :][: query.limit]

    async def count_activations(self, query: ActivationQuery) -> int:
        return max(0, len(self._matching(query)) - query.skip)

    def _matching(self, query: ActivationQuery) -> list[Activation]:
        return [activation for activation in self._activations.values() if matches(query, activation)]

    # --- the queue of accepted invocations --------------------------------------------------------------

    async def accept(self, accepted: Accepted) -> None:
        self._check()
        self._queue.setdefault(accepted.id, accepted)

    async def accept_all(self, accepted: Sequence[Accepted], record: Activation, event: bytes = b"") -> None:
        self._check()
        for one in accepted:
            self._queue.setdefault(one.id, one)
        self._events[record.id] = event
        self.record(record)

    async def count_start(self, activation_id: str) -> None:
        self._check()
        if (queued := self._queue.get(activation_id)) is not None:
            self._queue[activation_id] = replace(queued, starts=queued.starts + 1)

    async def forget_starts(self, activation_id: str) -> None:
        self._check()
        if (queued := self._queue.get(activation_id)) is not None:
            self._queue[activation_id] = replace(queued, starts=0)

    async def mark_started(self, activation_id: str) -> None:
        self._check()
        if activation_id in self._queue:
            known = self._queue[activation_id]
            self._queue[activation_id] = replace(known, started=known.started + 1, starts=0)

    async def unfinished(self) -> list[Accepted]:
        return [
            accepted if len(accepted.payload) <= SMALL_PAYLOAD_BYTES else replace(accepted, payload=b"")
            for accepted in self._queue.values()
            if accepted.id not in self._activations
        ]

    async def payload(self, activation_id: str) -> bytes | memoryview:
        queued = self._queue.get(activation_id)
        if queued is None:
            return b""
        return self._events[queued.event] if queued.event else queued.payload

    # --- executions of workflows ------------------------------------------------------------------------

    def write_execution(self, change: ExecutionChange) -> "asyncio.Future[None]":
        self._check()
        if change.reopen:
            del self._activations[change.id]
        self._executions.write(change)
        if change.end is not None:
            self.record(change.end.record)
        if change.dequeue:
            self._queue.pop(change.id, None)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written.set_result(None)
        return written

    async def open_executions(self) -> list[OpenExecution]:
        return self._executions.open()

    async def execution(self, owner: str, execution_id: str) -> ExecutionRow | None:
        found = self._executions.find(owner, execution_id)
        return None if found is None else found.row

    async def named_execution(self, owner: str, workflow: str, name: str) -> ExecutionRow | None:
        return self._executions.named(owner, workflow, name)

    async def first_event(self, owner: str, execution_id: str) -> bytes:
        found = self._executions.find(owner, execution_id)
        return found.events[0] if found is not None and found.events else b""

    async def stored_execution(self, owner: str, execution_id: str) -> StoredExecution | None:
        return self._executions.find(owner, execution_id)

    async def execution_objects(self, owner: str, execution_id: str, names: Sequence[str]) -> dict[str, bytes]:
        kept = self._executions.objects(owner, execution_id)
        return {name: kept[name] for name in names if name in kept}

    def reason_full(self, owner: str, size: int) -> str | None:
        return None

    async def executions(self, query: ExecutionQuery) -> list[ExecutionRow]:
        rows = self._executions.matching(query)[query.skip :][: query.limit]
        return [replace(row, outcome=b"") for row in rows]

    async def count_executions(self, query: ExecutionQuery) -> int:
        return max(0, len(self._executions.matching(query)) - query.skip)

    # --- the journal ------------------------------------------------------------------------------------

    def open_segment(self, snapshot: bytes) -> None:
        segment = self._journal[-1].segment + 1 if self._journal else 1
        self._journal.append(JournalEntry(segment, 0, snapshot))

    def journal(self, step: bytes) -> None:
        if not self._journal:
            raise StoreError("no journal segment is open: open_segment comes first")
        last = self._journal[-1]
        self._journal.append(JournalEntry(last.segment, last.number + 1, step))

    async def read_journal(self) -> AsyncIterator[JournalEntry]:
        for entry in list(self._journal):
            yield entry

    # --- housekeeping -----------------------------------------------------------------------------------

    async def flush(self) -> None:
        self._check()

    async def newest_ms(self) -> int | None:
        return list(self._activations.values())[-1].end if self._activations else None

    async def prune(
        self, retention: Retention, *, now_ms: int | None, weights: Mapping[str, float] | None = None
    ) -> None:
        """Drop the oldest activations by age and size, and the oldest journal segments by size only."""
        kept = list(self._activations.values())
        if now_ms is not None:
            since = now_ms - int(retention.activations_s * 1000)
            young = (number for number, one in enumerate(kept) if since <= one.end <= now_ms)
            first = next(young, len(kept))
            kept = [one for one in kept[:first] if one.end >= since] + kept[first:]
        used: dict[str, int] = {}
        for one in kept:
            used[one.owner] = used.get(one.owner, 0) + _bytes(one)
        if sum(used.values()) > retention.activations_bytes:
            weights = dict.fromkeys(used, 1.0) if weights is None else weights
            limit, minimum = retention.activations_bytes, retention.activations_min_bytes
            shares = fair_shares(used, limit, weights=weights, minimum=minimum)
            dropped = set()
            for one in sorted(kept, key=lambda one: one.start):
                if used[one.owner] > shares[one.owner]:
                    used[one.owner] -= _bytes(one)
                    dropped.add(one.id)
            kept = [one for one in kept if one.id not in dropped]
        self._activations = {activation.id: activation for activation in kept}
        self._executions.remove(set(self._activations))
        while sum(len(entry.body) for entry in self._journal) > retention.journal_bytes:
            oldest, newest = self._journal[0].segment, self._journal[-1].segment
            if oldest == newest:
                return
            self._journal = [entry for entry in self._journal if entry.segment != oldest]

    async def close(self) -> None:
        """Do nothing, because memory needs no closing."""


def _bytes(activation: Activation) -> int:
    return len(activation.summary) + len(activation.response) + len(activation.logs) + len(activation.pickled or b"")
