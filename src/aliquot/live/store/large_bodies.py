"""Store large bodies in pieces, so that no second copy is in memory while one is written or read.

The row of such a body is recognisable: its payload or pickle is empty, or its response ends before the result.
"""

import sqlite3

from msgspec.structs import replace

from aliquot.core.units import MIB
from aliquot.live.store.records import Accepted, Activation

PIECE_BYTES = 4 * MIB
PAYLOAD, RESULT, PICKLED = 0, 1, 2
_RESULT_FOLLOWS = b":"  # last byte of a response whose result is in pieces
OMITTED_RESULT = b"null"  # stands for a large result in lists
WRITE = "INSERT OR IGNORE INTO piece (id, kind, number, body) VALUES (?, ?, ?, ?)"
SIZE = "SELECT total(length(body)) FROM piece WHERE id = ? AND kind = ?"
READ = "SELECT body FROM piece WHERE id = ? AND kind = ? ORDER BY number"


def write_large_bodies(connection: sqlite3.Connection, record: Activation) -> Activation:
    """Write the large bodies of a record in pieces. Return the record as its row holds it."""
    if record.large is not None:
        _write(connection, record.id, RESULT, record.large)
    if isinstance(record.pickled, memoryview):
        _write(connection, record.id, PICKLED, record.pickled)
        return replace(record, pickled=b"")
    return record


def write_large_payload(connection: sqlite3.Connection, accepted: Accepted) -> Accepted:
    """Write a large payload in pieces. Return the invocation as its row holds it."""
    if isinstance(accepted.payload, memoryview):
        _write(connection, accepted.id, PAYLOAD, accepted.payload)
        return replace(accepted, payload=b"")
    return accepted


def is_complete(record: Activation) -> bool:
    """Return True if no body of the record is in pieces."""
    return record.pickled != b"" and record.response[-1:] != _RESULT_FOLLOWS


def read_large_bodies(connection: sqlite3.Connection, record: Activation) -> Activation:
    """Return the record with its pieces. They are missing if the record was pruned meanwhile."""
    large = pickled = None
    if record.response[-1:] == _RESULT_FOLLOWS:
        large = _read(connection, record.id, RESULT) or OMITTED_RESULT
    if record.pickled == b"":
        pickled = _read(connection, record.id, PICKLED)
    return replace(record, large=large, pickled=pickled or record.pickled)


def without_large_bodies(record: Activation) -> Activation:
    """Return the record for a list. A page of large bodies could fill the server's memory."""
    if record.response[-1:] == _RESULT_FOLLOWS:
        record = replace(record, large=OMITTED_RESULT)
    is_large = record.pickled == b"" or isinstance(record.pickled, memoryview)
    return replace(record, pickled=None) if is_large else record


def read_large_payload(connection: sqlite3.Connection, activation_id: str) -> memoryview:
    return _read(connection, activation_id, PAYLOAD)


def _write(connection: sqlite3.Connection, activation_id: str, kind: int, body: bytes | memoryview) -> None:
    view = memoryview(body)
    for number, begin in enumerate(range(0, len(view), PIECE_BYTES)):
        connection.execute(WRITE, (activation_id, kind, number, view[begin : begin + PIECE_BYTES]))


def _read(connection: sqlite3.Connection, activation_id: str, kind: int) -> memoryview:
    (size,) = connection.execute(SIZE, (activation_id, kind)).fetchone()
    whole = memoryview(bytearray(int(size)))
    at = 0
    for (piece,) in connection.execute(READ, (activation_id, kind)):
        whole[at : at + len(piece)] = piece
        at += len(piece)
    return whole
