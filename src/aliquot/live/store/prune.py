"""Forgetting the past in small steps, so that those who write are not held up.

Each step is one short transaction between two groups of the writer. The pages it frees are used again by what comes
next; when more than a quarter of the file is free, pages are given back to the file system.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from aliquot.core.units import MIB
from aliquot.live.store.base import Retention
from aliquot.live.store.writer import Writer

T = TypeVar("T")

ROWS = 512  # of activations, in one step
STEP_BYTES = 4 * MIB  # of bodies, in one step: what makes a step long is the pages
PAGES = 64  # given back in one step: each page costs a turn for the interpreter lock
GIVE_BACK_STEPS = 256  # at a time; the next time goes on
SPARE_PAGES = 4096  # kept for what comes next, at least

# Records are written when they end, so the order of the file is the order of their age, but for jumps of the clock:
# the walk goes on as long as a stretch of rows had something old in it.
STRETCH = "SELECT max(seq) FROM (SELECT seq FROM activation WHERE seq > ? ORDER BY seq LIMIT ?)"
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
# From its end: a segment half deleted is still a beginning that replays.
TAIL = "SELECT seq, length(bodies) FROM journal WHERE segment = ? ORDER BY seq DESC LIMIT ?"
DELETE_TAIL = "DELETE FROM journal WHERE segment = ? AND seq >= ?"


class Pruner:
    def __init__(self, connection: sqlite3.Connection, writer: Writer) -> None:
        self._connection = connection
        self._writer = writer

    async def run(self, retention: Retention, now_ms: int) -> None:
        await self._old_activations(now_ms - int(retention.activations_s * 1000))
        await self._many_activations(retention.activations_bytes)
        await self._journal(now_ms - int(retention.journal_s * 1000), retention.journal_bytes)
        for _ in range(GIVE_BACK_STEPS):
            if not await self._step(self._give_back):
                break
        # The file itself shrinks when the log has been moved into it.
        await self._step(lambda: self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone())

    async def _step(self, step: Callable[[], T]) -> T:
        result: T = await self._writer.call(step)
        return result

    def _value(self, statement: str, *values: object) -> int:
        (value,) = self._connection.execute(statement, values).fetchone()
        return int(value or 0)

    # --- activations ------------------------------------------------------------------------------------

    async def _old_activations(self, before_ms: int) -> None:
        begin = -1

        def step() -> tuple[int, int]:
            end = self._value(STRETCH, begin, ROWS)
            return end, self._connection.execute(DELETE_OLD, (begin, end, before_ms)).rowcount

        deleted = True
        while deleted:
            begin, rows = await self._step(step)
            deleted = rows > 0

    async def _many_activations(self, limit: int) -> None:
        if await self._step(self._used_bytes) <= limit:  # the sum would read an index from end to end
            return
        excess = await self._step(lambda: self._value(TOTAL)) - limit

        def step() -> int:
            freed = seq = 0
            for row, size in self._connection.execute(OLDEST, (ROWS,)).fetchall():
                seq, freed = row, freed + size
                if freed >= min(excess, STEP_BYTES):
                    break
            self._connection.execute(DELETE_UPTO, (seq,))
            return freed

        while excess > 0:
            freed = await self._step(step)
            if not freed:
                return
            excess -= freed

    # --- the journal ------------------------------------------------------------------------------------

    async def _journal(self, before_ms: int, limit: int) -> None:
        def look() -> tuple[list[tuple[int, int, int]], int]:
            return self._connection.execute(SEGMENTS).fetchall(), self._value(NEWEST_BYTES)

        segments, newest_bytes = await self._step(look)
        total = newest_bytes + sum(size for _, size, _ in segments)
        for segment, size, written_ms in segments:
            if total <= limit and written_ms >= before_ms:
                return
            await self._segment(segment)
            total -= size

    async def _segment(self, segment: int) -> None:
        def step() -> bool:
            freed, first = 0, None
            for seq, size in self._connection.execute(TAIL, (segment, ROWS)).fetchall():
                first, freed = seq, freed + size
                if freed >= STEP_BYTES:
                    break
            self._connection.execute(DELETE_TAIL, (segment, first))
            return first is not None

        while await self._step(step):
            pass

    # --- the file ---------------------------------------------------------------------------------------

    def _used_bytes(self) -> int:
        pages = self._value("PRAGMA page_count") - self._value("PRAGMA freelist_count")
        return pages * self._value("PRAGMA page_size")

    def _give_back(self) -> bool:
        """One step; whether there is more to give."""
        pages, free = self._value("PRAGMA page_count"), self._value("PRAGMA freelist_count")
        surplus = free - max(SPARE_PAGES, (pages - free) // 4)
        if surplus <= 0:
            return False
        # Each page is a row without columns, at which `execute` stops; a script goes on.
        self._connection.executescript(f"PRAGMA incremental_vacuum({min(PAGES, surplus)})")
        return True
