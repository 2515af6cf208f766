"""Follow the journal of a running server: its newest segments first, then each row that the server adds.

Segments that were deleted, damaged or written by another version are left out, and reading goes on with the next one.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from aliquot.core.errors import InputError
from aliquot.core.scheduler import Scheduler
from aliquot.live.history.steps import TimedStep, rows_before
from aliquot.live.invocations.journal import snapshot
from aliquot.live.invocations.journal.format import read_step
from aliquot.live.store.base import JournalEntry, StoreError
from aliquot.live.store.journal import read_heads, read_row, unpack
from aliquot.live.store.schema import connect_reader, locate

MAX_SEGMENTS = 8  # of 16 MiB or more, which are about 30,000 calls each


def first_rows(data: Path, max_segments: int = MAX_SEGMENTS) -> list[int]:
    """Return the first row of each of the newest segments, the oldest first. Raises `StoreError`."""
    return rows_before(read_heads(data), 2**62)[-max_segments:]


class JournalFollower:
    """Yields the steps of a journal from a row on. It can be asked again when the server has written more."""

    def __init__(self, data: Path, row: int) -> None:
        """Open the file. Raises `StoreError`."""
        self._connection = connect_reader(locate(data), busy_ms=1000)
        self._row = row - 1  # the last that was read
        self._segment = -1
        self._head: snapshot.SchedulerSnapshot | None = None
        self._offset_s: float | None = None  # from the scheduler's clock to epoch seconds
        self.skipped = 0  # rows that could not be read

    def close(self) -> None:
        self._connection.close()

    @property
    def row(self) -> int:
        return self._row

    def next_steps(self) -> list[TimedStep] | None:
        """Return the steps of the next row, or None if there is none. Raises `sqlite3.Error`."""
        row = read_row(self._connection, self._row)
        if row is None:
            return None
        self._row = row[0]
        try:
            return list(self._steps(unpack(row)))
        except (StoreError, InputError, msgspec.DecodeError):
            self.skipped += 1
            self._head = self._offset_s = None  # what follows in this segment has no meaning without this row
            return []

    def _steps(self, entries: list[JournalEntry]) -> Iterator[TimedStep]:
        for entry in entries:
            if entry.number == 0:
                self._head, self._segment = snapshot.read(entry.body), entry.segment
                continue
            head = self._head
            if head is None or entry.segment != self._segment:  # its head was deleted
                self._head = self._offset_s = None
                continue
            step = read_step(entry.body, head.format)
            before = None
            if entry.number == 1 and (self._offset_s is None or step.first == 0):
                self._offset_s = head.taken_ms / 1000 - step.now
                before = head
            if self._offset_s is not None:
                yield TimedStep(step, step.now + self._offset_s, before)


def restored(head: snapshot.SchedulerSnapshot) -> Scheduler | None:
    """Return the scheduler of a snapshot, or None if it is of another format or has a policy from elsewhere."""
    if head.format == snapshot.FORMAT:
        with suppress(InputError):
            return snapshot.restore(head)
    return None
