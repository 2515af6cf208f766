"""Read documents, activations and queued invocations from the file, merged with activations not written yet."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from aliquot.live.store.base import SMALL_PAYLOAD_BYTES, ActivationQuery, Document
from aliquot.live.store.large_bodies import read_large_payload, without_large_bodies
from aliquot.live.store.records import Accepted, Activation

COLUMNS = "id, namespace, name, start_ms, end_ms, summary, response, logs, pickled, session"
ONE = f"SELECT {COLUMNS} FROM activation WHERE id = ? AND namespace = ?"  # noqa: S608 - our own names
PAYLOAD = "SELECT payload FROM queue WHERE id = ?"
DOCUMENTS = "SELECT namespace, name, body FROM document WHERE collection = ? ORDER BY namespace, name"
UNFINISHED = (
    "SELECT id, namespace, name, accepted_ms, "
    "CASE WHEN length(payload) <= ? THEN payload ELSE x'' END, "
    "pickled, rerun, started, cause, session, starts FROM queue "
    "WHERE NOT EXISTS (SELECT 1 FROM activation WHERE activation.id = queue.id) ORDER BY seq"
)


def matches(query: ActivationQuery, activation: Activation) -> bool:
    return (
        activation.namespace == query.namespace
        and (query.name is None or activation.name == query.name)
        and (query.session is None or activation.session == query.session)
        and (query.since is None or activation.start >= query.since)
        and (query.upto is None or activation.start <= query.upto)
    )


def newest_first(activations: Sequence[Activation]) -> list[Activation]:
    """Sort activations, given in order of recording, by start. Of equal starts the last recorded comes first."""
    latest_first = activations[::-1]
    return sorted(latest_first, key=lambda activation: -activation.start)


def one(connection: sqlite3.Connection, namespace: str, activation_id: str) -> Activation | None:
    row = connection.execute(ONE, (activation_id, namespace)).fetchone()
    return None if row is None else Activation(*row)


def page(
    connection: sqlite3.Connection, query: ActivationQuery, pending: Sequence[Activation], last_seq: int
) -> list[Activation]:
    """Return one page. `pending` are the matching activations after `last_seq`, in order of recording."""
    where, values = _where(query, last_seq)
    # Wherever the pending ones sort, the first `skip - len(pending)` records of the file come before the page.
    begin = max(0, query.skip - len(pending))
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM activation WHERE {where} "  # noqa: S608 - our own names
        "ORDER BY start_ms DESC, seq DESC LIMIT ? OFFSET ?",
        (*values, query.skip + query.limit - begin, begin),
    )
    stored = [Activation(*row) for row in rows]
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
        Accepted(id_, namespace, name, accepted, payload, bool(pickled), bool(rerun), bool(started), *more)
        for id_, namespace, name, accepted, payload, pickled, rerun, started, *more in rows
    ]


def payload(connection: sqlite3.Connection, activation_id: str) -> bytes | memoryview:
    """Return the payload of a queued invocation, or nothing if it is not in the queue."""
    row = connection.execute(PAYLOAD, (activation_id,)).fetchone()
    return b"" if row is None else row[0] or read_large_payload(connection, activation_id)


def _where(query: ActivationQuery, last_seq: int) -> tuple[str, list[Any]]:
    terms = ["namespace = ?", "seq <= ?"]
    values: list[Any] = [query.namespace, last_seq]
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
