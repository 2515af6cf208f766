"""Delete old activations and journal segments in small steps that do not delay writes.

Each step is one short transaction between two groups of writes. Later writes reuse the freed pages. When more than a
quarter of the file is free, pages are returned to the file system.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from aliquot.core.units import MIB
from aliquot.live.store.base import Retention
from aliquot.live.store.bills import add_up
from aliquot.live.store.fair_shares import fair_shares
from aliquot.live.store.writer import WriterThread

T = TypeVar("T")

MAX_STEP_ROWS = 512
MAX_STEP_BYTES = 4 * MIB  # the pages of the bodies decide how long a step takes
MAX_STEP_PAGES = 64  # returned in one step; for each page the thread must get the interpreter lock again
MAX_VACUUM_STEPS = 256  # in one run; the next run continues
MIN_SPARE_PAGES = 4096  # kept for later writes

# Records are written when their calls end, so rows are in order of age, whatever the wall clock said. A row that comes
# after a young one is young, even if a clock that was behind says otherwise. Times in the future prove nothing.
NEXT_ROWS = "SELECT seq, end_ms FROM activation WHERE seq > ? ORDER BY seq LIMIT ?"
DELETE_OLD = "DELETE FROM activation WHERE seq > ? AND seq <= ? AND end_ms < ?"
TOTALS = "SELECT namespace, total(bytes) FROM activation INDEXED BY activation_by_start GROUP BY namespace"
OLDEST = "SELECT seq, bytes FROM activation WHERE namespace = ? ORDER BY start_ms, seq LIMIT ?"
DELETE_ROWS = "DELETE FROM activation WHERE seq IN (SELECT value FROM json_each(?))"
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

    async def run(
        self,
        retention: Retention,
        now_ms: int | None,
        weights: Mapping[str, float] | None,
        limits: Mapping[str, int],
        missing_bytes: int,
    ) -> None:
        """Delete what exceeds the limits: those of all records, those of single owners, and the space on the disk."""
        await self._bill_all()
        if now_ms is not None:
            await self._prune_old_activations(now_ms - int(retention.activations_s * 1000), now_ms)
        await self._prune_excess_activations(retention, weights, limits, missing_bytes)
        old_ms = 0 if now_ms is None else now_ms - int(retention.journal_s * 1000)
        await self._prune_journal(old_ms, retention.journal_bytes)
        for _ in range(MAX_VACUUM_STEPS):
            if not await self._step(self._return_pages):
                break
        # The file shrinks when the log has been moved into it.
        await self._step(lambda: self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone())

    async def _bill_all(self) -> None:
        """Add all records to the bill, because they may be deleted. A disk that is full goes before the bill."""
        billed = -1
        with suppress(sqlite3.OperationalError):
            while billed != (billed := await self._step(lambda: add_up(self._connection))):
                pass

    async def _step(self, step: Callable[[], T]) -> T:
        result: T = await self._writer.call(step)
        return result

    def _value(self, statement: str, *values: object) -> int:
        (value,) = self._connection.execute(statement, values).fetchone()
        return int(value or 0)

    # --- activations ------------------------------------------------------------------------------------

    async def _prune_old_activations(self, before_ms: int, now_ms: int) -> None:
        """Delete the old rows that come before the first young one."""
        begin = -1

        def step() -> tuple[int, bool]:
            end, young = begin, False
            for seq, end_ms in self._connection.execute(NEXT_ROWS, (begin, MAX_STEP_ROWS)).fetchall():
                young = before_ms <= end_ms <= now_ms
                if young:
                    break
                end = seq
            self._connection.execute(DELETE_OLD, (begin, end, before_ms))
            return end, young or end == begin

        ended = False
        while not ended:
            begin, ended = await self._step(step)

    async def _prune_excess_activations(
        self,
        retention: Retention,
        weights: Mapping[str, float] | None,
        limits: Mapping[str, int],
        missing_bytes: int,
    ) -> None:
        """Delete the oldest rows of those owners that have more than their share. The largest owner comes first."""
        limit = retention.activations_bytes
        # This is cheap, where the sums would read a whole index.
        if not missing_bytes and await self._step(self._used_bytes) <= min([limit, *limits.values()]):
            return
        used = await self._step(self._bytes_by_owner)
        if missing_bytes:
            limit = min(limit, max(0, sum(used.values()) - missing_bytes))
        weights = dict.fromkeys(used, 1.0) if weights is None else weights
        shares = used
        if sum(used.values()) > limit:
            shares = fair_shares(used, limit, weights=weights, minimum=retention.activations_min_bytes)
        kept = {owner: min(shares[owner], limits.get(owner, used[owner])) for owner in used}
        for owner in sorted(used, key=lambda owner: (kept[owner] - used[owner], owner)):
            await self._prune_owner(owner, used[owner] - kept[owner])

    async def _prune_owner(self, owner: str, excess: int) -> None:
        def step() -> int:
            freed, rows = 0, []
            for seq, size in self._connection.execute(OLDEST, (owner, MAX_STEP_ROWS)).fetchall():
                rows.append(seq)
                freed += size
                if freed >= min(excess, MAX_STEP_BYTES):
                    break
            self._connection.execute(DELETE_ROWS, (json.dumps(rows),))
            return freed

        while excess > 0:
            freed = await self._step(step)
            if not freed:
                return
            excess -= freed

    def _bytes_by_owner(self) -> dict[str, int]:
        return {owner: int(size) for owner, size in self._connection.execute(TOTALS)}

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
