"""Read documents, activations and queued invocations from the file, merged with activations not written yet."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from aliquot.live.store.base import MAX_PAGE_BYTES, SMALL_PAYLOAD_BYTES, ActivationQuery, Document, LargePageError
from aliquot.live.store.large_bodies import read_large_payload, without_large_bodies
from aliquot.live.store.records import Accepted, Activation

COLUMNS = "id, namespace, name, start_ms, end_ms, summary, response, logs, pickled, session"
SUMMARY_COLUMNS = "id, namespace, name, start_ms, end_ms, summary, x'', x'', NULL, NULL"  # reads no large column
BODY_BYTES = "length(response) + length(logs) + ifnull(length(pickled), 0)"
ONE = f"SELECT {COLUMNS} FROM activation WHERE id = ? AND namespace = ?"  # noqa: S608 - our own names
PAYLOAD = "SELECT payload, (SELECT body FROM event WHERE event.id = queue.event) FROM queue WHERE id = ?"
DOCUMENTS = "SELECT namespace, name, body FROM document WHERE collection = ? ORDER BY namespace, name"
NEWEST = (
    "SELECT end_ms FROM activation ORDER BY seq DESC LIMIT 1",
    "SELECT written_ms FROM journal ORDER BY seq DESC LIMIT 1",
)
UNFINISHED = (
    "SELECT id, namespace, name, accepted_ms, "
    "CASE WHEN length(payload) <= ? THEN payload ELSE x'' END, "
    "pickled, rerun, started, cause, session, starts, event FROM queue "
    "WHERE NOT EXISTS (SELECT 1 FROM activation WHERE activation.id = queue.id) ORDER BY seq"
)


def matches(query: ActivationQuery, activation: Activation) -> bool:
    return (
        activation.owner == query.owner
        and (query.name is None or activation.name == query.name)
        and (query.session is None or activation.session == query.session)
        and (query.since is None or activation.start >= query.since)
        and (query.upto is None or activation.start <= query.upto)
    )


def newest_first(activations: Sequence[Activation]) -> list[Activation]:
    """Sort activations, given in order of recording, by start. Of equal starts the last recorded comes first."""
    latest_first = activations[::-1]
    return sorted(latest_first, key=lambda activation: -activation.start)


def one(connection: sqlite3.Connection, owner: str, activation_id: str) -> Activation | None:
    row = connection.execute(ONE, (activation_id, owner)).fetchone()
    return None if row is None else Activation(*row)


def page(
    connection: sqlite3.Connection, query: ActivationQuery, pending: Sequence[Activation], last_seq: int
) -> list[Activation]:
    """Return one page. `pending` are the matching activations after `last_seq`, in order of recording."""
    where, values = _where(query, last_seq)
    # Wherever the pending ones sort, the first `skip - len(pending)` records of the file come before the page.
    begin = max(0, query.skip - len(pending))
    selected = f"FROM activation WHERE {where} ORDER BY start_ms DESC, seq DESC LIMIT ? OFFSET ?"
    values += [query.skip + query.limit - begin, begin]
    if not query.summaries:
        sizes = f"SELECT total(size) FROM (SELECT {BODY_BYTES} AS size {selected})"  # noqa: S608 - our own names
        if (size := int(connection.execute(sizes, values).fetchone()[0])) > MAX_PAGE_BYTES:
            raise LargePageError(size)
    columns = SUMMARY_COLUMNS if query.summaries else COLUMNS
    stored = [Activation(*row) for row in connection.execute(f"SELECT {columns} {selected}", values)]
    both = newest_first([without_large_bodies(one) for one in (*reversed(stored), *pending)])
    return both[query.skip - begin :][: query.limit]


def count(connection: sqlite3.Connection, query: ActivationQuery, pending: int, last_seq: int) -> int:
    where, values = _where(query, last_seq)
    (stored,) = connection.execute(f"SELECT count(*) FROM activation WHERE {where}", values).fetchone()  # noqa: S608
    return max(0, int(stored) + pending - query.skip)


def documents(connection: sqlite3.Connection, collection: str) -> list[Document]:
    return [Document(*row) for row in connection.execute(DOCUMENTS, (collection,))]


def unfinished(connection: sqlite3.Connection) -> list[Accepted]:
    rows = connection.execute(UNFINISHED, (SMALL_PAYLOAD_BYTES,))
    return [
        Accepted(id_, owner, name, accepted, payload, bool(pickled), rerun, started, *more)
        for id_, owner, name, accepted, payload, pickled, rerun, started, *more in rows
    ]


def payload(connection: sqlite3.Connection, activation_id: str) -> bytes | memoryview:
    """Return the payload of a queued invocation or the body of its event, or nothing if it is not in the queue."""
    own, event = connection.execute(PAYLOAD, (activation_id,)).fetchone() or (None, None)
    if own is None:
        return b""
    return own or event or read_large_payload(connection, activation_id)


def newest_ms(connection: sqlite3.Connection) -> int | None:
    found = [connection.execute(statement).fetchone() for statement in NEWEST]
    return max((int(row[0]) for row in found if row is not None), default=None)


def _where(query: ActivationQuery, last_seq: int) -> tuple[str, list[Any]]:
    terms = ["namespace = ?", "seq <= ?"]
    values: list[Any] = [query.owner, last_seq]
    for term, value in (
        ("name = ?", query.name),
        ("session = ?", query.session),
        ("start_ms >= ?", query.since),
        ("start_ms <= ?", query.upto),
    ):
        if value is not None:
            terms.append(term)
            values.append(value)
    return " AND ".join(terms), values
