"""Pack journal entries into rows, and read the journal of a file without a server."""

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from aliquot.live.store.base import JournalEntry, StoreError
from aliquot.live.store.schema import connect_reader, locate
from aliquot.live.store.sqlite_errors import as_store_error

Row = tuple[int, int, int, bytes, bytes]

# Rows are read one at a time, because a long read would keep a running server from reusing its write-ahead log.
NEXT_ROW = "SELECT seq, segment, first, lengths, bodies FROM journal WHERE seq > ? ORDER BY seq LIMIT 1"
NEXT_HEAD = "SELECT seq, segment, first, lengths, bodies FROM journal WHERE first = 0 AND seq > ? ORDER BY seq LIMIT 1"


class SegmentHead(NamedTuple):
    """The first entry of a segment, which is a snapshot, and the row that it begins with."""

    row: int
    body: bytes


def pack(entries: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the lengths (32 bits each, little-endian) and the concatenated entries."""
    lengths = array("I", map(len, entries))
    return lengths.tobytes(), b"".join(entries)


def unpack(row: Row) -> list[JournalEntry]:
    _, segment, first, packed, bodies = row
    lengths = array("I")
    lengths.frombytes(packed)
    if sum(lengths) != len(bodies):
        raise StoreError(f"the journal is damaged in segment {segment}, entry {first}")
    entries = []
    begin = 0
    for number, length in enumerate(lengths, start=first):
        entries.append(JournalEntry(segment, number, bodies[begin : begin + length]))
        begin += length
    return entries


def read_row(connection: sqlite3.Connection, after: int) -> Row | None:
    row: Row | None = connection.execute(NEXT_ROW, (after,)).fetchone()
    return row


def read_journal(path: Path, after: int = -1) -> Iterator[JournalEntry]:
    """Yield every durable entry of a database file, or of the one in a data directory. Raises `StoreError`.

    It writes nothing. A server may have the file open, and entries that it commits meanwhile are read, too. Rows up to
    the number `after` are left out.
    """
    for row in _read_rows(path, NEXT_ROW, after):
        yield from unpack(row)


def read_heads(path: Path) -> Iterator[SegmentHead]:
    """Yield the head of every segment, oldest first. Raises `StoreError`."""
    for row, _, _, lengths, bodies in _read_rows(path, NEXT_HEAD, -1):
        yield SegmentHead(row, bodies[: array("I", lengths[:4])[0]])


def _read_rows(path: Path, query: str, after: int) -> Iterator[Row]:
    file = locate(path)
    if not file.exists():
        raise StoreError(f"{file} is not there")
    with closing(connect_reader(file, busy_ms=1000)) as connection:
        while True:
            try:
                row: Row | None = connection.execute(query, (after,)).fetchone()
            except sqlite3.Error as error:
                raise as_store_error(error, file) from error
            if row is None:
                return
            yield row
            after = row[0]
