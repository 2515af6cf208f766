"""The store in one SQLite file: one thread writes in groups, another reads, the event loop waits for neither."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from aliquot.core.units import MIB
from aliquot.live.store import pieces, reads
from aliquot.live.store.backlog import Backlog
from aliquot.live.store.base import (
    ActivationQuery,
    Change,
    Document,
    JournalEntry,
    Retention,
    Store,
    StoreError,
    StoreHealth,
)
from aliquot.live.store.batch import BatchWriter
from aliquot.live.store.journal import read_row, unpack
from aliquot.live.store.lock import OwnerLock
from aliquot.live.store.operations import Kind
from aliquot.live.store.prune import Pruner
from aliquot.live.store.records import Accepted, Activation
from aliquot.live.store.schema import connect_reader, connect_writer, prepare
from aliquot.live.store.trouble import as_store_error, explain
from aliquot.live.store.writer import Writer

T = TypeVar("T")


class SqliteStore(Store):
    """Made by `await SqliteStore.open(path)`; used on one event loop, and from its thread only."""

    def __init__(
        self,
        path: Path,
        lock: OwnerLock,
        writer: Writer,
        batches: BatchWriter,
        backlog: Backlog,
        pruner: Pruner,
        health: StoreHealth,
    ) -> None:
        self.path = path
        self.health = health
        self._lock = lock
        self._writer = writer
        self._batches = batches
        self._backlog = backlog
        self._pruner = pruner
        self._segment_open = False
        self._closed = False
        # Point reads are so short that the loop does them itself; the other connection belongs to the thread.
        self._near = connect_reader(path, busy_ms=0)
        self._far = connect_reader(path, busy_ms=1000)
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="aliquot-store-read")

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        gather_s: float = 0.002,
        max_backlog_bytes: int = 256 * MIB,
        max_backlog_rows: int = 200_000,
        busy_ms: int = 1000,
    ) -> Self:
        """Open `aliquot.db` in this data directory, or this `.db` file, and make it if need be. Raises `StoreError`."""
        loop = asyncio.get_running_loop()
        path = prepare(path)
        lock = OwnerLock(path)
        try:
            connection = await asyncio.to_thread(connect_writer, path, busy_ms=busy_ms)
        except BaseException:
            lock.release()
            raise
        try:
            batches = BatchWriter(connection)
        except sqlite3.Error as error:
            connection.close()
            lock.release()
            raise as_store_error(error, path) from error
        writer = Writer(loop, connection, batches.checkpoint)
        try:
            health = StoreHealth()
            backlog = Backlog(
                loop, writer, batches.write, lambda error: explain(error, path), health,
                gather_s=gather_s, max_bytes=max_backlog_bytes, max_rows=max_backlog_rows, last_seq=batches.seq,
            )  # fmt: skip
            return cls(path, lock, writer, batches, backlog, Pruner(connection, writer), health)
        except StoreError:
            writer.stop()
            lock.release()
            raise

    @property
    def commits(self) -> int:
        """How many groups have been written."""
        return self._batches.commits

    # --- documents --------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[Change]) -> None:
        await self._backlog.durable(Kind.APPLY, list(changes))

    async def scan(self, collection: str) -> list[Document]:
        return await self._read(lambda connection: reads.documents(connection, collection))

    # --- activations ------------------------------------------------------------------------------------

    def record(self, activation: Activation) -> None:
        self._backlog.record(activation)

    async def finish(self, activation: Activation) -> None:
        await self._backlog.durable(Kind.FINISH, activation)

    async def activation(self, namespace: str, activation_id: str) -> Activation | None:
        pending = self._backlog.records.get(activation_id)
        if pending is not None:
            return pending if pending.namespace == namespace else None
        try:
            found = reads.one(self._near, namespace, activation_id)
        except sqlite3.Error:  # locked, perhaps: wait for it where waiting harms nobody
            found = await self._read(lambda connection: reads.one(connection, namespace, activation_id))
        if found is None or pieces.is_whole(found):
            return found
        partial_record = found
        return await self._read(lambda connection: pieces.completed(connection, partial_record))

    async def activations(self, query: ActivationQuery) -> list[Activation]:
        pending, last_seq = self._pending(query)
        return await self._read(lambda connection: reads.page(connection, query, pending, last_seq))

    async def count_activations(self, query: ActivationQuery) -> int:
        pending, last_seq = self._pending(query)
        return await self._read(lambda connection: reads.count(connection, query, len(pending), last_seq))

    def _pending(self, query: ActivationQuery) -> tuple[list[Activation], int]:
        """What the file up to that number does not hold: taken together, nothing is missed or seen twice."""
        found = [record for record in self._backlog.records.values() if reads.matches(query, record)]
        return found, self._backlog.last_seq

    # --- the queue of accepted invocations --------------------------------------------------------------

    async def accept(self, accepted: Accepted) -> None:
        await self._backlog.durable(Kind.ACCEPT, ((accepted,), ()))

    async def accept_all(self, accepted: Sequence[Accepted], record: Activation) -> None:
        await self._backlog.durable(Kind.ACCEPT, (tuple(accepted), (record,)))

    async def mark_started(self, activation_id: str) -> None:
        await self._backlog.durable(Kind.STARTED, activation_id)

    async def unfinished(self) -> list[Accepted]:
        return await self._read(reads.unfinished)

    # --- the journal ------------------------------------------------------------------------------------

    def open_segment(self, snapshot: bytes) -> None:
        self._segment_open = True
        self._backlog.open_segment(snapshot)

    def journal(self, step: bytes) -> None:
        if not self._segment_open:
            raise StoreError("no journal segment is open: open_segment comes first")
        self._backlog.journal(step)

    async def read_journal(self) -> AsyncIterator[JournalEntry]:
        after = -1
        while (row := await self._read(partial(read_row, after=after))) is not None:
            for entry in unpack(row):
                yield entry
            after = row[0]

    # --- housekeeping -----------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        return self._backlog.rows

    async def flush(self) -> None:
        if not self._backlog.idle:
            await self._backlog.durable(Kind.BARRIER, None)

    async def prune(self, retention: Retention, *, now_ms: int) -> None:
        with suppress(StoreError):  # a disk that takes nothing more needs this all the more
            await self.flush()  # what is on its way is judged too
        try:
            await self._pruner.run(retention, now_ms)
        except sqlite3.Error as error:
            raise as_store_error(error, self.path) from error

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush()
        finally:
            self._backlog.stop()
            self._readers.shutdown()
            self._near.close()
            self._far.close()
            # Last, so that it puts the log away: that is done by the connection that is closed last.
            await asyncio.to_thread(self._writer.stop)
            self._lock.release()

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, query, self._far)
        except sqlite3.Error as error:
            raise as_store_error(error, self.path) from error
