"""Write one group of operations as one transaction, in few statements.

Every `sqlite3_step` releases the interpreter lock. Getting it back from a busy event loop can take a whole switch
interval (5 ms), so the number of statements must not grow with the number of rows. Rows are inserted by hundreds, in
statements of a few fixed sizes that stay compiled. Unused places hold rows of NULLs, which `OR IGNORE` skips.
"""

import json
import sqlite3
from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from aliquot.clock import now_ms
from aliquot.core.units import MIB
from aliquot.live.store.base import DocumentChange, Put
from aliquot.live.store.bills import SUM_AFTER_ROWS, add_up, last_billed
from aliquot.live.store.disk_reserve import DiskReserve
from aliquot.live.store.executions import ExecutionChange, write_changes
from aliquot.live.store.inserts import insert
from aliquot.live.store.journal import pack
from aliquot.live.store.large_bodies import write_large_bodies, write_large_payload
from aliquot.live.store.records import Accepted, Activation
from aliquot.live.store.schema import VERSION

CHECKPOINT_ROWS = 8192
CHECKPOINT_BYTES = 32 * MIB  # of bodies, so that large ones do not let the log grow without limit
COMMIT_ROWS = 16  # cost of a commit in rows, because even a small one changes several pages
ACTIVATION = "activation (seq, id, namespace, name, start_ms, end_ms, summary, response, logs, pickled, session, bytes)"
QUEUE = "queue (id, namespace, name, accepted_ms, payload, pickled, rerun, started, cause, session, starts, event)"
EVENT = "event (id, body)"
JOURNAL = "INSERT INTO journal (segment, first, entries, written_ms, lengths, bodies) VALUES (?, ?, ?, ?, ?, ?)"
STARTING = "UPDATE queue SET starts = starts + 1 WHERE id IN (SELECT value FROM json_each(?))"
NOT_STARTING = "UPDATE queue SET starts = 0 WHERE id IN (SELECT value FROM json_each(?))"
STARTED = (
    "UPDATE queue SET started = started + (SELECT count(*) FROM json_each(?1) WHERE value = queue.id), starts = 0 "
    "WHERE id IN (SELECT value FROM json_each(?1))"
)
FINISHED = "DELETE FROM queue WHERE id IN (SELECT value FROM json_each(?))"
PUT = "INSERT OR REPLACE INTO document (collection, namespace, name, body) VALUES (?, ?, ?, ?)"
DELETE = "DELETE FROM document WHERE collection = ? AND namespace = ? AND name = ?"
# A write that changes nothing. It shows if the disk can be written.
PROBE = f"PRAGMA user_version = {VERSION}"


class WriteKind(Enum):
    """The kinds of durable writes. Each comment gives the type of the write's value."""

    APPLY = auto()  # list[DocumentChange]
    ACCEPT = auto()  # (invocations to queue, records of the events that caused them, ids and bodies of these events)
    STARTING = auto()  # activation id
    NOT_STARTING = auto()  # activation id
    STARTED = auto()  # activation id
    FINISH = auto()  # Activation
    EXECUTION = auto()  # ExecutionChange
    BARRIER = auto()  # None: it changes nothing, and is done when everything before it is durable


# The statements for changes of queued invocations, in the order in which they happen to one of them.
_CHANGES = {WriteKind.STARTING: STARTING, WriteKind.NOT_STARTING: NOT_STARTING, WriteKind.STARTED: STARTED}


class SegmentStart(Struct, frozen=True):
    """The first entry of a new journal segment."""

    body: bytes


class DurableWrite:
    """A write that a caller waits for. If it fails, none of it is ever written."""

    __slots__ = ("future", "kind", "value")

    def __init__(self, kind: WriteKind, value: Any, future: "Future[None]") -> None:  # noqa: ANN401 - by kind
        self.kind = kind
        self.value = value
        self.future = future


Operation: TypeAlias = Activation | bytes | SegmentStart | DurableWrite  # bytes are a journal step


class BatchWriter:
    """Writes groups in order. Runs on the writer thread."""

    def __init__(self, connection: sqlite3.Connection, reserve: DiskReserve) -> None:
        self._connection = connection
        self._reserve = reserve
        (newest,) = connection.execute("SELECT ifnull(max(seq), 0) FROM activation").fetchone()
        self._billed = last_billed(connection)
        self.seq = max(newest, self._billed)  # numbers of deleted records are not used again
        (self.segment,) = connection.execute("SELECT ifnull(max(segment), 0) FROM journal").fetchone()
        self.number = 0  # position of the next entry in the segment
        self.commits = 0
        self._since_checkpoint = 0
        self._bytes_since_checkpoint = 0  # of bodies
        # What is in the log needs space in the file, too.
        self._max_log_bytes = min(CHECKPOINT_BYTES, reserve.reserve_bytes // 2)
        self.count_spare_bytes()

    def write(self, operations: Sequence[Operation]) -> int:
        """Write all operations, or none if one fails. Return the number of the last record in the file."""
        before = self.seq, self.segment, self.number
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            if operations:
                self._write(operations)
            else:
                execute(PROBE)
            execute("COMMIT")
        except BaseException:
            self.seq, self.segment, self.number = before
            # The disk may be full. A checkpoint lets the log start again from its beginning, which frees space.
            self._since_checkpoint = CHECKPOINT_ROWS
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        self.commits += 1
        self._since_checkpoint += COMMIT_ROWS + len(operations)
        return int(self.seq)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file if it has grown, and add records to the bill.

        Called after callers have their results.

        Only this connection does so, because SQLite before 3.51.3 may damage a file when two connections reset its log
        at once. A failure is harmless: the log still holds the data. A full disk is reported when the log cannot grow.
        """
        if self._since_checkpoint >= CHECKPOINT_ROWS or self._bytes_since_checkpoint >= self._max_log_bytes:
            self._since_checkpoint = self._bytes_since_checkpoint = 0
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self.count_spare_bytes()
        if self.seq - self._billed >= SUM_AFTER_ROWS:
            self._billed = self.seq  # a failure is harmless: the next time adds these records, too
            with suppress(sqlite3.Error):
                self._billed = add_up(self._connection)

    def count_spare_bytes(self) -> None:
        """Tell the disk's reserve how many bytes of the file are free."""
        (pages,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        (page_bytes,) = self._connection.execute("PRAGMA page_size").fetchone()
        self._reserve.spare_bytes = pages * page_bytes

    def _write(self, operations: Sequence[Operation]) -> None:
        records: list[Activation] = []
        steps: list[bytes] = []
        accepted: list[Accepted] = []
        changed: dict[WriteKind, list[str]] = {kind: [] for kind in _CHANGES}
        events: list[tuple[str, bytes]] = []
        finished: list[str] = []
        executions: list[ExecutionChange] = []
        for operation in operations:
            if isinstance(operation, bytes):
                steps.append(operation)
            elif isinstance(operation, Activation):
                records.append(operation)
            elif isinstance(operation, SegmentStart):
                self._write_journal(steps)
                self.segment, self.number, steps = self.segment + 1, 0, [operation.body]
            elif operation.kind is WriteKind.ACCEPT:
                accepted += operation.value[0]
                records += operation.value[1]
                events += operation.value[2]
            elif operation.kind in changed:
                changed[operation.kind].append(operation.value)
            elif operation.kind is WriteKind.FINISH:
                records.append(operation.value)
                finished.append(operation.value.id)
            elif operation.kind is WriteKind.EXECUTION:
                executions.append(operation.value)
            elif operation.kind is WriteKind.APPLY:
                self._write_documents(operation.value)
        insert(self._connection, EVENT, events)
        self._bytes_since_checkpoint += sum(len(one.payload) for one in accepted) + sum(len(body) for _, body in events)
        # One id is accepted, starting, started and finished in this order, so one statement per kind keeps the order.
        insert(self._connection, QUEUE, [astuple(write_large_payload(self._connection, one)) for one in accepted])
        self._write_changes(changed)
        logs = self._write_executions(executions, records, finished) if executions else {}
        self._write_records(records, logs)
        self._write_ids(FINISHED, finished)
        self._write_journal(steps)

    def _write_executions(
        self, changes: list[ExecutionChange], records: list[Activation], finished: list[str]
    ) -> dict[str, int]:
        """Write the steps of executions, and return the bytes of the logs that have ended with them."""
        write_changes(self._connection, changes)
        self._bytes_since_checkpoint += sum(change.size for change in changes)
        ends = [change.end for change in changes if change.end is not None]
        records += [end.record for end in ends]
        finished += [change.id for change in changes if change.dequeue]
        return {end.record.id: end.kept_bytes for end in ends}

    def _write_records(self, records: Iterable[Activation], more_bytes: Mapping[str, int]) -> None:
        """Write records. `more_bytes` are kept with some of them, and go with them."""
        rows = []
        for seq, record in enumerate(records, start=self.seq + 1):
            *fields, large = astuple(record)
            if large is not None or type(record.pickled) is memoryview:
                *fields, _ = astuple(write_large_bodies(self._connection, record))
            rows.append((seq, *fields, (size := body_bytes(record)) + more_bytes.get(record.id, 0)))
            self._bytes_since_checkpoint += size
        insert(self._connection, ACTIVATION, rows)
        self.seq += len(rows)

    def _write_changes(self, changed: dict[WriteKind, list[str]]) -> None:
        for kind, statement in _CHANGES.items():
            self._write_ids(statement, changed[kind])

    def _write_ids(self, statement: str, ids: list[str]) -> None:
        if ids:
            self._connection.execute(statement, (json.dumps(ids),))

    def _write_journal(self, entries: list[bytes]) -> None:
        if entries:
            lengths, bodies = pack(entries)
            written_ms = now_ms()
            row = (self.segment, self.number, len(entries), written_ms, lengths, bodies)
            self._connection.execute(JOURNAL, row)
            self.number += len(entries)

    def _write_documents(self, changes: Iterable[DocumentChange]) -> None:
        for change in changes:
            if isinstance(change, Put):
                self._connection.execute(PUT, (change.collection, *astuple(change.document)))
                self._bytes_since_checkpoint += len(change.document.body)
            else:
                self._connection.execute(DELETE, astuple(change))


def body_bytes(record: Activation) -> int:
    large = len(record.large or b"") + len(record.pickled or b"")
    return len(record.summary) + len(record.response) + len(record.logs) + large
