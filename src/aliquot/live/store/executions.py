"""Executions of workflows in the store: their rows, the log of each, and when each is to be continued.

The log of an execution has one row for each step, with all events of that step. The table `timer` has one row for each
open execution: the time of its next timer, and whether it has work that a server must take up again after a crash.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from aliquot.live.store.inserts import insert, update
from aliquot.live.store.large_bodies import PIECE_BYTES
from aliquot.live.store.records import Activation

OPEN_STATUS = "RUNNING"
DEFINITION = "definition (digest, body)"
EXECUTION = "execution (id, namespace, workflow, name, digest, status, start_ms, end_ms, body, outcome)"
EVENT = "execution_event (execution, number, body)"
SET_TIMERS = (
    "INSERT OR REPLACE INTO timer (execution, due, busy) SELECT json_extract(value, '$[0]'), "
    "json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?)"
)
WRITE_OBJECT = "INSERT OR REPLACE INTO execution_object (execution, id, number, body) VALUES (?, ?, ?, ?)"
READ_OBJECT = "SELECT body FROM execution_object WHERE execution = ? AND id = ? ORDER BY number"
REMOVE_OBJECTS = "DELETE FROM execution_object WHERE execution IN (SELECT value FROM json_each(?))"
REMOVE_TIMERS = "DELETE FROM timer WHERE execution IN (SELECT value FROM json_each(?))"
END = (
    "WITH ended (id, status, end_ms, outcome) AS (VALUES {}) UPDATE execution "
    "SET status = ended.status, end_ms = ended.end_ms, outcome = ended.outcome FROM ended WHERE execution.id = ended.id"
)
REOPEN = (
    f"UPDATE execution SET status = '{OPEN_STATUS}', end_ms = NULL, outcome = x'' "  # noqa: S608 - our own names
    "WHERE id IN (SELECT value FROM json_each(?))"
)
# The row is open again by then, so the trigger of this table leaves it alone.
FORGET_RECORDS = "DELETE FROM activation WHERE id IN (SELECT value FROM json_each(?))"
COLUMNS = "id, namespace, workflow, name, digest, status, start_ms, end_ms, body, outcome"


class ExecutionRow(Struct, frozen=True, gc=False):
    """An execution as lists show it. `body` has what the shell needs to take it up again."""

    id: str  # that of its activation
    owner: str
    workflow: str  # name of the flow in the caller's namespace
    name: str  # given by the caller, or empty
    digest: str  # of its definition
    status: str
    start: int  # epoch ms
    end: int | None
    body: bytes
    outcome: bytes = b""  # JSON with output, or error and cause; empty while it runs


class ExecutionTimer(Struct, frozen=True, gc=False):
    """The time of the next timer in seconds since the epoch, if there is one, and whether tasks are under way."""

    due: float | None
    busy: bool


class ExecutionEnd(Struct, frozen=True, gc=False):
    """The end of an execution with its activation record. `kept_bytes` is the size of its log."""

    status: str
    outcome: bytes
    record: Activation
    kept_bytes: int


class ExecutionChange(Struct, frozen=True, gc=False):
    """One step of an execution, written in one transaction."""

    id: str
    owner: str
    number: int  # of the row in the log
    events: bytes
    begin: ExecutionRow | None = None
    definition: bytes = b""  # with `begin`
    dequeue: bool = False  # the call was in the queue of accepted invocations until now
    reopen: bool = False  # the execution had ended
    timer: ExecutionTimer | None = None  # None leaves it as it is
    end: ExecutionEnd | None = None
    objects: tuple[tuple[str, bytes | memoryview], ...] = ()  # by id, for later tasks
    removes_objects: bool = False  # no later task can need them

    @property
    def size(self) -> int:
        """The bytes of the bodies."""
        size = len(self.events) + len(self.definition) + sum(len(body) for _, body in self.objects)
        return size + (len(self.begin.body) if self.begin else 0) + (len(self.end.outcome) if self.end else 0)


class OpenExecution(Struct, frozen=True, gc=False):
    """An execution that has not ended, as the server reads it at its start."""

    id: str
    owner: str
    due: float | None
    busy: bool
    bytes: int  # of its log


class StoredExecution(Struct, frozen=True, gc=False):
    """An execution with its definition and the rows of its log."""

    row: ExecutionRow
    definition: bytes
    events: list[bytes]


class ExecutionQuery(Struct, frozen=True):
    """A page of a list of executions, latest start first."""

    owner: str
    workflow: str | None = None
    status: str | None = None
    since: int | None = None
    upto: int | None = None
    skip: int = 0
    limit: int = 30


def write_changes(connection: sqlite3.Connection, changes: Sequence[ExecutionChange]) -> None:
    """Write the changes of one group, of which each execution has at most one."""
    begun = [change for change in changes if change.begin is not None]
    if begun:
        insert(connection, DEFINITION, [(one.begin.digest, one.definition) for one in begun if one.begin])
        insert(connection, EXECUTION, [astuple(one.begin) for one in begun if one.begin])
    if reopened := [change.id for change in changes if change.reopen]:
        connection.execute(REOPEN, (json.dumps(reopened),))
        connection.execute(FORGET_RECORDS, (json.dumps(reopened),))
    insert(connection, EVENT, [(change.id, change.number, change.events) for change in changes if change.events])
    for change in changes:
        for name, body in change.objects:
            _write_object(connection, change.id, name, body)
    if without := [change.id for change in changes if change.removes_objects]:
        connection.execute(REMOVE_OBJECTS, (json.dumps(without),))
    timers = [(one.id, one.timer.due, one.timer.busy) for one in changes if one.timer and one.end is None]
    if timers:
        connection.execute(SET_TIMERS, (json.dumps(timers),))
    if ended := [change for change in changes if change.end is not None]:
        rows = [(one.id, one.end.status, one.end.record.end, one.end.outcome) for one in ended if one.end]
        update(connection, END, rows)
        connection.execute(REMOVE_TIMERS, (json.dumps([change.id for change in ended]),))


def _write_object(connection: sqlite3.Connection, execution: str, name: str, body: bytes | memoryview) -> None:
    view = memoryview(body)
    for number, begin in enumerate(range(0, len(view), PIECE_BYTES)):
        connection.execute(WRITE_OBJECT, (execution, name, number, view[begin : begin + PIECE_BYTES]))


# --- reads -----------------------------------------------------------------------------------------------------


def open_executions(connection: sqlite3.Connection) -> list[OpenExecution]:
    """Return all open executions, in the order of their starts."""
    rows = connection.execute(
        "SELECT execution.id, namespace, due, ifnull(busy, 1), length(execution.body) + "
        "(SELECT ifnull(sum(length(body)), 0) FROM execution_event WHERE execution = execution.id) + "
        "(SELECT ifnull(sum(length(body)), 0) FROM execution_object WHERE execution = execution.id) "
        "FROM execution LEFT JOIN timer ON timer.execution = execution.id WHERE status = ? ORDER BY seq",
        (OPEN_STATUS,),
    )
    return [OpenExecution(id_, owner, due, bool(busy), size) for id_, owner, due, busy, size in rows]


def read_row(connection: sqlite3.Connection, owner: str, execution: str) -> ExecutionRow | None:
    row = connection.execute(
        f"SELECT {COLUMNS} FROM execution WHERE id = ? AND namespace = ?",  # noqa: S608 - our own names
        (execution, owner),
    ).fetchone()
    return None if row is None else ExecutionRow(*row)


def read_objects(connection: sqlite3.Connection, owner: str, execution: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the objects of an execution that exist. Another owner has none."""
    if read_row(connection, owner, execution) is None:
        return {}
    found = {}
    for name in names:
        pieces = [body for (body,) in connection.execute(READ_OBJECT, (execution, name))]
        if pieces:
            found[name] = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return found


def read_first_event(connection: sqlite3.Connection, execution: str) -> bytes:
    """Return the first row of the log, which has the input."""
    found = connection.execute(
        "SELECT body FROM execution_event WHERE execution = ? ORDER BY number LIMIT 1", (execution,)
    ).fetchone()
    return b"" if found is None else bytes(found[0])


def read_execution(connection: sqlite3.Connection, owner: str, execution: str) -> StoredExecution | None:
    row = read_row(connection, owner, execution)
    if row is None:
        return None
    (definition,) = connection.execute("SELECT body FROM definition WHERE digest = ?", (row.digest,)).fetchone()
    events = connection.execute("SELECT body FROM execution_event WHERE execution = ? ORDER BY number", (execution,))
    return StoredExecution(row, definition, [body for (body,) in events])


def find_named(connection: sqlite3.Connection, owner: str, workflow: str, name: str) -> ExecutionRow | None:
    """Return the execution of a workflow that has this name."""
    row = connection.execute(
        f"SELECT {COLUMNS} FROM execution WHERE namespace = ? AND workflow = ? AND name = ?",  # noqa: S608
        (owner, workflow, name),
    ).fetchone()
    return None if row is None else ExecutionRow(*row)


def page(connection: sqlite3.Connection, query: ExecutionQuery) -> list[ExecutionRow]:
    where, values = _where(query)
    columns = COLUMNS.replace("outcome", "x''")
    rows = connection.execute(
        f"SELECT {columns} FROM execution WHERE {where} ORDER BY start_ms DESC, seq DESC LIMIT ? OFFSET ?",  # noqa: S608
        [*values, query.limit, query.skip],
    )
    return [ExecutionRow(*row) for row in rows]


def count(connection: sqlite3.Connection, query: ExecutionQuery) -> int:
    where, values = _where(query)
    (found,) = connection.execute(f"SELECT count(*) FROM execution WHERE {where}", values).fetchone()  # noqa: S608
    return max(0, int(found) - query.skip)


def _where(query: ExecutionQuery) -> tuple[str, list[Any]]:
    terms, values = ["namespace = ?"], [query.owner]
    bounds: Iterable[tuple[str, Any]] = (
        ("workflow = ?", query.workflow),
        ("status = ?", query.status),
        ("start_ms >= ?", query.since),
        ("start_ms <= ?", query.upto),
    )
    for term, value in bounds:
        if value is not None:
            terms.append(term)
            values.append(value)
    return " AND ".join(terms), values
