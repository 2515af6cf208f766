"""Bodies too large for a row, in pieces: neither SQLite nor we hold one a second time while it is written or read.

In its row a payload or a pickle that is in pieces is empty, and a response is not closed.
"""

import sqlite3

from msgspec.structs import replace

from aliquot.core.units import MIB
from aliquot.live.store.records import Accepted, Activation

PIECE_BYTES = 4 * MIB
PAYLOAD, RESULT, PICKLED = 0, 1, 2
_OPEN = b":"  # how a response ends that is not closed
LEFT_OUT = b"null"  # for a result, in lists
WRITE = "INSERT OR IGNORE INTO piece (id, kind, number, body) VALUES (?, ?, ?, ?)"
SIZE = "SELECT total(length(body)) FROM piece WHERE id = ? AND kind = ?"
READ = "SELECT body FROM piece WHERE id = ? AND kind = ? ORDER BY number"


def set_aside(connection: sqlite3.Connection, record: Activation) -> Activation:
    """The record as its row has it."""
    if record.large is not None:
        _write(connection, record.id, RESULT, record.large)
    if isinstance(record.pickled, memoryview):
        _write(connection, record.id, PICKLED, record.pickled)
        return replace(record, pickled=b"")
    return record


def set_payload_aside(connection: sqlite3.Connection, accepted: Accepted) -> Accepted:
    if isinstance(accepted.payload, memoryview):
        _write(connection, accepted.id, PAYLOAD, accepted.payload)
        return replace(accepted, payload=b"")
    return accepted


def is_whole(record: Activation) -> bool:
    return record.pickled != b"" and record.response[-1:] != _OPEN


def completed(connection: sqlite3.Connection, record: Activation) -> Activation:
    """With what is in pieces; it is gone when the record has been forgotten meanwhile."""
    large = pickled = None
    if record.response[-1:] == _OPEN:
        large = _read(connection, record.id, RESULT) or LEFT_OUT
    if record.pickled == b"":
        pickled = _read(connection, record.id, PICKLED)
    return replace(record, large=large, pickled=pickled or record.pickled)


def in_list(record: Activation) -> Activation:
    """Without what may be large: a page of them would be a server's memory."""
    if record.response[-1:] == _OPEN:
        record = replace(record, large=LEFT_OUT)
    is_large = record.pickled == b"" or isinstance(record.pickled, memoryview)
    return replace(record, pickled=None) if is_large else record


def payload_of(connection: sqlite3.Connection, activation_id: str) -> memoryview:
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
