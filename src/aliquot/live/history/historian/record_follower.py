"""Follow the table of records of calls, in the order in which they were written."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from aliquot.live.history.index.calls import PLATFORM_ERROR, SUCCESS
from aliquot.live.history.index.journal_index import CallRecord
from aliquot.live.store.records import name_of_owner
from aliquot.live.store.schema import connect_reader, locate

MAX_ROWS = 2000  # read at once
MAX_ERROR_CHARACTERS = 300
_MAX_RESPONSE_BYTES = 4096
_NEWEST = "SELECT ifnull(max(seq), 0) FROM activation"
_NEXT = (
    "SELECT seq, id, namespace, name, start_ms, end_ms, summary, session FROM activation "
    "WHERE seq > ? ORDER BY seq LIMIT ?"
)
_RESPONSE = "SELECT substr(response, 1, ?) FROM activation WHERE seq = ?"


class _RecordNote(Struct, frozen=True):
    """An annotation of a record."""

    key: str
    value: Any = None


class _RecordSummary(Struct, frozen=True, rename="camel"):
    """The part of a summary that the index needs."""

    status_code: int = PLATFORM_ERROR
    annotations: list[_RecordNote] = []


_read_summary = msgspec.json.Decoder(_RecordSummary).decode


class RecordFollower:
    """Yields the records of calls, beginning with the newest ones that there are. It can be asked again."""

    def __init__(self, data: Path, newest: int) -> None:
        """Open the file, and begin with the `newest` records. Raises `StoreError` and `sqlite3.Error`."""
        self._connection = connect_reader(locate(data), busy_ms=1000)
        (last,) = self._connection.execute(_NEWEST).fetchone()
        self._seq = max(0, int(last) - newest)

    def close(self) -> None:
        self._connection.close()

    def next_records(self) -> list[CallRecord]:
        """Return the next records, or nothing if there is none. Raises `sqlite3.Error`."""
        rows = self._connection.execute(_NEXT, (self._seq, MAX_ROWS)).fetchall()
        if rows:
            self._seq = rows[-1][0]
        return [self._record(*row) for row in rows]

    def _record(
        self, seq: int, call_id: str, owner: str, name: str, start_ms: int, end_ms: int, summary: bytes, session: str
    ) -> CallRecord:
        try:
            read = _read_summary(summary)
        except msgspec.DecodeError:
            read = _RecordSummary()
        error = "" if read.status_code == SUCCESS else self._error(seq)
        notes = {note.key: note.value for note in read.annotations}
        times = start_ms / 1000, end_ms / 1000
        return CallRecord(call_id, owner, name_of_owner(owner), name, *times, read.status_code, error, session, notes)

    def _error(self, seq: int) -> str:
        row = self._connection.execute(_RESPONSE, (_MAX_RESPONSE_BYTES, seq)).fetchone()
        return _error_text(bytes(row[0])) if row is not None and row[0] else ""


def _error_text(response: bytes) -> str:
    """Return the error of a response as text. One that was cut off is shown as it is."""
    try:
        found: Any = msgspec.json.decode(response)
        result = found.get("result") if isinstance(found, dict) else None
        error = result.get("error", result) if isinstance(result, dict) else result
        text = error if isinstance(error, str) else msgspec.json.encode(error).decode()
    except msgspec.DecodeError:
        text = response.decode(errors="replace")
    return text[:MAX_ERROR_CHARACTERS]
