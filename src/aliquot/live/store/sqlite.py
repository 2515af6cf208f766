"""The store in one SQLite file. One thread writes in groups, another reads, and the event loop never blocks."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from aliquot.histogram import LatencyHistogram
from aliquot.live.store import executions as executions_table
from aliquot.live.store import large_bodies, reads
from aliquot.live.store.base import (
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
from aliquot.live.store.batch import BatchWriter, WriteKind, body_bytes
from aliquot.live.store.disk_reserve import MAX_SMALL_BYTES, DiskReserve, without_bodies
from aliquot.live.store.executions import (
    ExecutionChange,
    ExecutionQuery,
    ExecutionRow,
    OpenExecution,
    StoredExecution,
)
from aliquot.live.store.fair_reads import FairReads
from aliquot.live.store.journal import read_row, unpack
from aliquot.live.store.kept_bytes import DEFAULT_KEPT_BYTES, KeptBytes
from aliquot.live.store.lock import OwnerLock
from aliquot.live.store.prune import Pruner
from aliquot.live.store.records import Accepted, Activation, name_of_owner
from aliquot.live.store.schema import connect_reader, connect_writer, prepare
from aliquot.live.store.sqlite_errors import as_store_error
from aliquot.live.store.write_queue import MAX_BACKLOG_BYTES, WriteQueue
from aliquot.live.store.writer import WriterThread

T = TypeVar("T")


class SqliteStore(Store):
    """Implements `Store` with SQLite. Create it with `await SqliteStore.open(path)`.

    It belongs to one event loop, and is used from that loop's thread only.
    """

    def __init__(
        self,
        path: Path,
        lock: OwnerLock,
        writer: WriterThread,
        batches: BatchWriter,
        write_queue: WriteQueue,
        pruner: Pruner,
        health: StoreHealth,
        kept: KeptBytes,
        reserve: DiskReserve,
    ) -> None:
        self.path = path
        self.health = health
        self._lock = lock
        self._writer = writer
        self._batches = batches
        self._write_queue = write_queue
        self._pruner = pruner
        self._kept = kept
        self._reserve = reserve
        self._awaited_bytes = 0  # of durable writes that are not on disk yet
        self._segment_open = False
        self._closed = False
        # Reads of a single row are short enough for the event loop. The other connection belongs to the read thread.
        self._loop_reader = connect_reader(path, busy_ms=0)
        self._reads = FairReads(connect_reader(path, busy_ms=1000))

    @property
    def commit_times(self) -> LatencyHistogram:
        return self._write_queue.commit_times

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        gather_s: float = 0.01,
        max_backlog_bytes: int = MAX_BACKLOG_BYTES,
        max_backlog_rows: int = 200_000,
        busy_ms: int = 1000,
        max_kept_bytes: int | None = DEFAULT_KEPT_BYTES,
        reserve_bytes: int | None = None,
    ) -> Self:
        """Open or create `aliquot.db` in this data directory, or this `.db` file. Raises `StoreError`.

        `max_kept_bytes` limits what is kept for a namespace, `reserve_bytes` of the disk are left to small writes.
        """
        loop = asyncio.get_running_loop()
        path = prepare(path)
        lock = OwnerLock(path)
        try:
            connection = await asyncio.to_thread(connect_writer, path, busy_ms=busy_ms)
        except BaseException:
            lock.release()
            raise
        try:
            reserve, kept = DiskReserve(path.parent, reserve_bytes), KeptBytes(max_kept_bytes)
            batches = BatchWriter(connection, reserve)
            await asyncio.to_thread(kept.load, connection)
        except sqlite3.Error as error:
            connection.close()
            lock.release()
            raise as_store_error(error, path) from error
        writer = WriterThread(loop, connection, batches.checkpoint)
        try:
            health = StoreHealth()
            write_queue = WriteQueue(
                loop, writer, batches.write, lambda error: as_store_error(error, path), health,
                gather_s=gather_s, max_bytes=max_backlog_bytes, max_rows=max_backlog_rows, last_seq=batches.seq,
            )  # fmt: skip
            pruner = Pruner(connection, writer)
            return cls(path, lock, writer, batches, write_queue, pruner, health, kept, reserve)
        except StoreError:
            writer.stop()
            lock.release()
            raise

    @property
    def commits(self) -> int:
        """The number of groups written."""
        return self._batches.commits

    # --- documents --------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[DocumentChange]) -> None:
        changes = list(changes)
        self._kept.check(changes)
        size = sum(len(change.document.body) for change in changes if isinstance(change, Put))
        await self._write_durably(WriteKind.APPLY, changes, size)
        self._kept.apply(changes)

    async def scan(self, collection: str) -> list[Document]:
        return await self._read(lambda connection: reads.documents(connection, collection))

    # --- activations ------------------------------------------------------------------------------------

    def record(self, activation: Activation) -> None:
        size = body_bytes(activation)
        if size > MAX_SMALL_BYTES and not self._has_space(size):
            activation = without_bodies(activation, size)
            size = body_bytes(activation)
        self._write_queue.record(activation, size)

    async def finish(self, activation: Activation) -> None:
        size = body_bytes(activation)
        if not self._has_space(size):
            activation, size = without_bodies(activation, size), 0
        with self._write_queue.counted(activation.owner, size):
            await self._write_durably(WriteKind.FINISH, activation, 0, checked=True)
        self._kept.finish(activation.id)

    async def activation(self, owner: str, activation_id: str) -> Activation | None:
        pending = self._write_queue.records.get(activation_id)
        if pending is not None:
            return pending if pending.owner == owner else None
        try:
            found = reads.one(self._loop_reader, owner, activation_id)
        except sqlite3.Error:  # perhaps locked: the read thread may wait, the event loop may not
            found = await self._read(lambda connection: reads.one(connection, owner, activation_id), owner)
        if found is None or large_bodies.is_complete(found):
            return found
        partial_record = found
        return await self._read(lambda connection: large_bodies.read_large_bodies(connection, partial_record), owner)

    async def activations(self, query: ActivationQuery) -> list[Activation]:
        pending, last_seq = self._pending(query)
        return await self._read(lambda connection: reads.page(connection, query, pending, last_seq), query.owner)

    async def count_activations(self, query: ActivationQuery) -> int:
        pending, last_seq = self._pending(query)
        count = len(pending)
        return await self._read(lambda connection: reads.count(connection, query, count, last_seq), query.owner)

    def _pending(self, query: ActivationQuery) -> tuple[list[Activation], int]:
        """Return the matching records that are not durable yet, and the number of the last durable one.

        Both are read at the same moment, so a list neither misses nor repeats a record.
        """
        found = [record for record in self._write_queue.records.values() if reads.matches(query, record)]
        return found, self._write_queue.last_seq

    # --- the queue of accepted invocations --------------------------------------------------------------

    async def accept(self, accepted: Accepted) -> None:
        await self._accept((accepted,), (), ())

    async def accept_all(self, accepted: Sequence[Accepted], record: Activation, event: bytes = b"") -> None:
        events = ((record.id, event),) if any(one.event for one in accepted) else ()
        await self._accept(tuple(accepted), (record,), events)

    async def _accept(
        self, accepted: tuple[Accepted, ...], records: tuple[Activation, ...], events: tuple[tuple[str, bytes], ...]
    ) -> None:
        event_bytes = sum(len(body) for _, body in events)
        size = event_bytes + sum(len(one.payload) for one in accepted) + sum(map(body_bytes, records))
        self._kept.accept(accepted, event_bytes)
        try:
            await self._write_durably(WriteKind.ACCEPT, (accepted, records, events), size)
        except StoreError:
            for one in accepted:
                self._kept.finish(one.id)
            raise

    async def count_start(self, activation_id: str) -> None:
        await self._write_queue.add_durable(WriteKind.STARTING, activation_id)

    async def forget_starts(self, activation_id: str) -> None:
        await self._write_queue.add_durable(WriteKind.NOT_STARTING, activation_id)

    async def mark_started(self, activation_id: str) -> None:
        await self._write_queue.add_durable(WriteKind.STARTED, activation_id)

    async def unfinished(self) -> list[Accepted]:
        return await self._read(reads.unfinished)

    async def payload(self, activation_id: str) -> bytes | memoryview:
        namespace = self._kept.namespace_of(activation_id)
        return await self._read(lambda connection: reads.payload(connection, activation_id), namespace)

    # --- executions of workflows ------------------------------------------------------------------------

    def write_execution(self, change: ExecutionChange) -> "asyncio.Future[None]":
        if change.begin is not None:
            self._reserve.check(change.size, self._awaited_bytes + self._write_queue.waiting_bytes)
            self._kept.begin_execution(change.id, change.owner, change.size, queued=change.dequeue)
        else:
            self._kept.grow_execution(change.id, change.owner, change.size)
        written = self._write_queue.add_durable(WriteKind.EXECUTION, change)
        written.add_done_callback(partial(self._execution_written, change))
        return written

    def _execution_written(self, change: ExecutionChange, written: "asyncio.Future[None]") -> None:
        failed = written.cancelled() or written.exception() is not None
        if failed and change.begin is None:
            self._kept.grow_execution(change.id, change.owner, -change.size)
        elif failed or change.end is not None:
            self._kept.finish(change.id)

    async def open_executions(self) -> list[OpenExecution]:
        return await self._read(executions_table.open_executions)

    async def execution(self, owner: str, execution_id: str) -> ExecutionRow | None:
        return await self._read(lambda connection: executions_table.read_row(connection, owner, execution_id), owner)

    async def named_execution(self, owner: str, workflow: str, name: str) -> ExecutionRow | None:
        return await self._read(
            lambda connection: executions_table.find_named(connection, owner, workflow, name), owner
        )

    async def first_event(self, owner: str, execution_id: str) -> bytes:
        return await self._read(lambda connection: executions_table.read_first_event(connection, execution_id), owner)

    async def stored_execution(self, owner: str, execution_id: str) -> StoredExecution | None:
        return await self._read(
            lambda connection: executions_table.read_execution(connection, owner, execution_id), owner
        )

    async def execution_objects(self, owner: str, execution_id: str, names: Sequence[str]) -> dict[str, bytes]:
        return await self._read(
            lambda connection: executions_table.read_objects(connection, owner, execution_id, names), owner
        )

    def reason_full(self, owner: str, size: int) -> str | None:
        return self._kept.reason_full(owner, size)

    async def executions(self, query: ExecutionQuery) -> list[ExecutionRow]:
        return await self._read(lambda connection: executions_table.page(connection, query), query.owner)

    async def count_executions(self, query: ExecutionQuery) -> int:
        return await self._read(lambda connection: executions_table.count(connection, query), query.owner)

    # --- the journal ------------------------------------------------------------------------------------

    def open_segment(self, snapshot: bytes) -> None:
        self._segment_open = True
        self._write_queue.open_segment(snapshot)

    def journal(self, step: bytes) -> None:
        if not self._segment_open:
            raise StoreError("no journal segment is open: open_segment comes first")
        self._write_queue.journal(step)

    async def read_journal(self) -> AsyncIterator[JournalEntry]:
        after = -1
        while (row := await self._read(partial(read_row, after=after))) is not None:
            for entry in unpack(row):
                yield entry
            after = row[0]

    # --- space ------------------------------------------------------------------------------------------

    @property
    def is_low_on_space(self) -> bool:
        return self._reserve.missing_bytes > 0

    def limit_kept_bytes(self, namespace: str, limit: int | None) -> None:
        self._kept.set_limit(namespace, limit)

    def _has_space(self, size: int) -> bool:
        return self._reserve.fits(size, self._awaited_bytes + self._write_queue.waiting_bytes)

    async def _write_durably(self, kind: WriteKind, value: object, size: int, *, checked: bool = False) -> None:
        """Wait for a durable write. Raises `DiskReserveError` if it is large and the disk is almost full."""
        if not checked:
            self._reserve.check(size, self._awaited_bytes + self._write_queue.waiting_bytes)
        self._awaited_bytes += size
        try:
            await self._write_queue.add_durable(kind, value)
        finally:
            self._awaited_bytes -= size

    # --- housekeeping -----------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        return self._write_queue.rows

    async def flush(self) -> None:
        if not self._write_queue.idle:
            await self._write_queue.add_durable(WriteKind.BARRIER, None)

    async def newest_ms(self) -> int | None:
        return await self._read(reads.newest_ms)

    async def prune(
        self, retention: Retention, *, now_ms: int | None, weights: Mapping[str, float] | None = None
    ) -> None:
        with suppress(StoreError):  # a full disk needs pruning even more
            await self.flush()  # so that queued records are considered, too
        try:
            await self._pruner.run(
                retention, now_ms, weights, self._record_limits(weights), self._reserve.missing_bytes
            )
            await self._writer.call(self._batches.count_spare_bytes)
        except sqlite3.Error as error:
            raise as_store_error(error, self.path) from error

    def _record_limits(self, weights: Mapping[str, float] | None) -> dict[str, int]:
        """Return the limits on the records of owners: what their namespaces' limits leave beside all else."""
        limits = {}
        for owner in weights or ():
            namespace = name_of_owner(owner)
            limit = self._kept.limit(namespace)
            if limit is not None:
                limits[owner] = max(0, limit - self._kept.used(namespace))
        return limits

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush()
        finally:
            self._write_queue.stop()
            self._reads.close()
            self._loop_reader.close()
            # The writer closes last, because the last connection to close removes the write-ahead log.
            await asyncio.to_thread(self._writer.stop)
            self._lock.release()

    async def _read(self, query: Callable[[sqlite3.Connection], T], owner: str = "") -> T:
        try:
            return await self._reads.run(owner, query)
        except sqlite3.Error as error:
            raise as_store_error(error, self.path) from error
