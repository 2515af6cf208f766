"""One group of writes as one transaction, in few statements.

Every `sqlite3_step` gives the interpreter lock away and must win it back from a busy event loop, which can take the
whole switch interval (5 ms). So the number of statements must not grow with the number of rows: rows go in by
hundreds, in statements of a few fixed sizes that stay compiled, filled up with rows of NULLs that `OR IGNORE` passes
over.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from msgspec.structs import astuple

from aliquot.clock import now_ms
from aliquot.live.store.base import Change, Put
from aliquot.live.store.journal import pack
from aliquot.live.store.operations import Kind, Operation, Snapshot
from aliquot.live.store.pieces import set_aside, set_payload_aside
from aliquot.live.store.records import Accepted, Activation
from aliquot.live.store.schema import VERSION

CHECKPOINT_ROWS = 8192
COMMIT_ROWS = 16  # a small commit still changes several pages
SIZES = (1, 4, 16, 64, 256, 1024)
ACTIVATION = "activation (seq, id, namespace, name, start_ms, end_ms, summary, response, logs, pickled, session, bytes)"
QUEUE = "queue (id, namespace, name, accepted_ms, payload, pickled, rerun, started, cause, session)"
JOURNAL = "INSERT INTO journal (segment, first, entries, written_ms, lengths, bodies) VALUES (?, ?, ?, ?, ?, ?)"
STARTED = "UPDATE queue SET started = 1 WHERE id IN (SELECT value FROM json_each(?))"
FINISHED = "DELETE FROM queue WHERE id IN (SELECT value FROM json_each(?))"
PUT = "INSERT OR REPLACE INTO document (collection, namespace, name, body) VALUES (?, ?, ?, ?)"
DELETE = "DELETE FROM document WHERE collection = ? AND namespace = ? AND name = ?"
# A write that changes nothing: it shows whether the disk takes one.
PROBE = f"PRAGMA user_version = {VERSION}"


@cache
def _insert(target: str, rows: int) -> str:
    columns = target.count(",") + 1
    row = "(" + ", ".join("?" * columns) + ")"
    return f"INSERT OR IGNORE INTO {target} VALUES " + ", ".join([row] * rows)  # noqa: S608 - our own names


def insert(connection: sqlite3.Connection, target: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows whose key is there already are passed over."""
    columns = target.count(",") + 1
    for begin in range(0, len(rows), SIZES[-1]):
        chunk = rows[begin : begin + SIZES[-1]]
        size = next(size for size in SIZES if size >= len(chunk))
        values: list[Any] = []
        for row in chunk:
            values += row
        values += [None] * (columns * (size - len(chunk)))
        connection.execute(_insert(target, size), values)


class BatchWriter:
    """Writes groups in order; lives on the writer's thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self.seq,) = connection.execute("SELECT ifnull(max(seq), 0) FROM activation").fetchone()
        (self.segment,) = connection.execute("SELECT ifnull(max(segment), 0) FROM journal").fetchone()
        self.number = 0  # of the next entry in the segment
        self.commits = 0
        self._since_checkpoint = 0

    def write(self, operations: Sequence[Operation]) -> int:
        """All of them or none. Returns the number of the last record in the file."""
        before = self.seq, self.segment, self.number
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            self._write(operations)
            execute("COMMIT")
        except BaseException:
            self.seq, self.segment, self.number = before
            self._since_checkpoint = CHECKPOINT_ROWS  # once it is in the file, the log begins anew: that is room too
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        self.commits += 1
        self._since_checkpoint += COMMIT_ROWS + len(operations)
        return int(self.seq)

    def checkpoint(self) -> None:
        """Move the log into the file now and then; called when nobody waits.

        Only this connection ever does so: SQLite before 3.51.3 may damage a file when two reset its log at once. If it
        fails, the log holds what the file lacks, and a disk that is full shows itself when the log cannot grow.
        """
        if self._since_checkpoint >= CHECKPOINT_ROWS:
            self._since_checkpoint = 0
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _write(self, operations: Sequence[Operation]) -> None:
        if not operations:
            self._connection.execute(PROBE)
            return
        records: list[Activation] = []
        steps: list[bytes] = []
        accepted: list[Accepted] = []
        started: list[str] = []
        finished: list[str] = []
        for operation in operations:
            if isinstance(operation, bytes):
                steps.append(operation)
            elif isinstance(operation, Activation):
                records.append(operation)
            elif isinstance(operation, Snapshot):
                self._write_journal(steps)
                self.segment, self.number, steps = self.segment + 1, 0, [operation.body]
            elif operation.kind is Kind.ACCEPT:
                accepted += operation.value[0]
                records += operation.value[1]
            elif operation.kind is Kind.STARTED:
                started.append(operation.value)
            elif operation.kind is Kind.FINISH:
                records.append(operation.value)
                finished.append(operation.value.id)
            elif operation.kind is Kind.APPLY:
                self._write_documents(operation.value)
        # For one id these come in this order, whoever waits for what; so the group needs one statement for each.
        insert(self._connection, QUEUE, [astuple(set_payload_aside(self._connection, one)) for one in accepted])
        self._write_ids(STARTED, started)
        self._write_records(records)
        self._write_ids(FINISHED, finished)
        self._write_journal(steps)

    def _write_records(self, records: Iterable[Activation]) -> None:
        rows = []
        for seq, record in enumerate(records, start=self.seq + 1):
            *fields, large = astuple(record)
            if large is not None or type(record.pickled) is memoryview:
                *fields, _ = astuple(set_aside(self._connection, record))
            rows.append((seq, *fields, body_bytes(record)))
        insert(self._connection, ACTIVATION, rows)
        self.seq += len(rows)

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

    def _write_documents(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Put):
                self._connection.execute(PUT, (change.collection, *astuple(change.document)))
            else:
                self._connection.execute(DELETE, astuple(change))


def body_bytes(record: Activation) -> int:
    large = len(record.large or b"") + len(record.pickled or b"")
    return len(record.summary) + len(record.response) + len(record.logs) + large
