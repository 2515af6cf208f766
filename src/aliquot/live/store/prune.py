"""Delete old activations and journal segments in small steps that do not delay writes.

Each step is one short transaction between two groups of writes. Later writes reuse the freed pages. When more than a
quarter of the file is free, pages are returned to the file system.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from aliquot.core.units import MIB
from aliquot.live.store.base import Retention
from aliquot.live.store.writer import WriterThread

T = TypeVar("T")

MAX_STEP_ROWS = 512
MAX_STEP_BYTES = 4 * MIB  # the pages of the bodies decide how long a step takes
MAX_STEP_PAGES = 64  # returned in one step; for each page the thread must get the interpreter lock again
MAX_VACUUM_STEPS = 256  # in one run; the next run continues
MIN_SPARE_PAGES = 4096  # kept for later writes

# Records are written when their calls end, so rows are in order of age unless the wall clock has jumped. The search
# for old rows goes on as long as the last range of rows contained one.
RANGE_END = "SELECT max(seq) FROM (SELECT seq FROM activation WHERE seq > ? ORDER BY seq LIMIT ?)"
DELETE_OLD = "DELETE FROM activation WHERE seq > ? AND seq <= ? AND end_ms < ?"
TOTAL = "SELECT total(bytes) FROM activation INDEXED BY activation_by_start"
OLDEST = "SELECT seq, bytes FROM activation ORDER BY seq LIMIT ?"
DELETE_UPTO = "DELETE FROM activation WHERE seq <= ?"
SEGMENTS = (
    "SELECT segment, total(length(lengths) + length(bodies)), max(written_ms) FROM journal "
    "WHERE segment < (SELECT max(segment) FROM journal) GROUP BY segment ORDER BY segment"
)
NEWEST_BYTES = (
    "SELECT total(length(lengths) + length(bodies)) FROM journal WHERE segment = (SELECT max(segment) FROM journal)"
)
# Segments are deleted from the end, because the first part of a segment can still be replayed.
TAIL = "SELECT seq, length(bodies) FROM journal WHERE segment = ? ORDER BY seq DESC LIMIT ?"
DELETE_TAIL = "DELETE FROM journal WHERE segment = ? AND seq >= ?"


class Pruner:
    def __init__(self, connection: sqlite3.Connection, writer: WriterThread) -> None:
        self._connection = connection
        self._writer = writer

    async def run(self, retention: Retention, now_ms: int) -> None:
        await self._prune_old_activations(now_ms - int(retention.activations_s * 1000))
        await self._prune_excess_activations(retention.activations_bytes)
        await self._prune_journal(now_ms - int(retention.journal_s * 1000), retention.journal_bytes)
        for _ in range(MAX_VACUUM_STEPS):
            if not await self._step(self._return_pages):
                break
        # The file shrinks when the log has been moved into it.
        await self._step(lambda: self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone())

    async def _step(self, step: Callable[[], T]) -> T:
        result: T = await self._writer.call(step)
        return result

    def _value(self, statement: str, *values: object) -> int:
        (value,) = self._connection.execute(statement, values).fetchone()
        return int(value or 0)

    # --- activations ------------------------------------------------------------------------------------

    async def _prune_old_activations(self, before_ms: int) -> None:
        begin = -1

        def step() -> tuple[int, int]:
            end = self._value(RANGE_END, begin, MAX_STEP_ROWS)
            return end, self._connection.execute(DELETE_OLD, (begin, end, before_ms)).rowcount

        deleted = True
        while deleted:
            begin, rows = await self._step(step)
            deleted = rows > 0

    async def _prune_excess_activations(self, limit: int) -> None:
        if await self._step(self._used_bytes) <= limit:  # cheap, where the sum would read a whole index
            return
        excess = await self._step(lambda: self._value(TOTAL)) - limit

        def step() -> int:
            freed = seq = 0
            for row, size in self._connection.execute(OLDEST, (MAX_STEP_ROWS,)).fetchall():
                seq, freed = row, freed + size
                if freed >= min(excess, MAX_STEP_BYTES):
                    break
            self._connection.execute(DELETE_UPTO, (seq,))
            return freed

        while excess > 0:
            freed = await self._step(step)
            if not freed:
                return
            excess -= freed

    # --- the journal ------------------------------------------------------------------------------------

    async def _prune_journal(self, before_ms: int, limit: int) -> None:
        def read_sizes() -> tuple[list[tuple[int, int, int]], int]:
            return self._connection.execute(SEGMENTS).fetchall(), self._value(NEWEST_BYTES)

        segments, newest_bytes = await self._step(read_sizes)
        total = newest_bytes + sum(size for _, size, _ in segments)
        for segment, size, written_ms in segments:
            if total <= limit and written_ms >= before_ms:
                return
            await self._delete_segment(segment)
            total -= size

    async def _delete_segment(self, segment: int) -> None:
        def step() -> bool:
            freed, first = 0, None
            for seq, size in self._connection.execute(TAIL, (segment, MAX_STEP_ROWS)).fetchall():
                first, freed = seq, freed + size
                if freed >= MAX_STEP_BYTES:
                    break
            self._connection.execute(DELETE_TAIL, (segment, first))
            return first is not None

        while await self._step(step):
            pass

    # --- the file ---------------------------------------------------------------------------------------

    def _used_bytes(self) -> int:
        pages = self._value("PRAGMA page_count") - self._value("PRAGMA freelist_count")
        return pages * self._value("PRAGMA page_size")

    def _return_pages(self) -> bool:
        """Return one step's pages to the file system. Return False if there was nothing to return."""
        pages, free = self._value("PRAGMA page_count"), self._value("PRAGMA freelist_count")
        surplus = free - max(MIN_SPARE_PAGES, (pages - free) // 4)
        if surplus <= 0:
            return False
        # Each page yields a row without columns, and `execute` stops at the first. A script does not.
        self._connection.executescript(f"PRAGMA incremental_vacuum({min(MAX_STEP_PAGES, surplus)})")
        return True
