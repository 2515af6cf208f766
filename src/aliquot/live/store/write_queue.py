"""The queue of writes on the event loop: it forms groups and submits them to the writer thread, one at a time.

All state belongs to the event loop's thread. The writer thread gets lists that do not change any more. A group is
submitted some milliseconds after its first write, or at once if a caller waits for one of its writes. While one group
is being written, the next one collects, and for a moment after that, because a larger group costs less for each write.

When a group fails, its durable writes and those still queued are dropped and their callers get the error. A refused
write must never take effect later. Other writes stay at the head of the queue, in order, and are tried again. Each new
durable write is another attempt. Without one the queue retries after a delay, with an empty group if nothing is queued,
so that the health recovers when the disk does. A group with a value that SQLite cannot store is split in halves until
the value is found. That write alone is dropped.
"""

import sqlite3
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from aliquot.budgets import Budget
from aliquot.core.units import KIB, MIB
from aliquot.histogram import LatencyHistogram
from aliquot.live.store.base import StoreError, StoreHealth
from aliquot.live.store.batch import DurableWrite, Operation, SegmentStart, WriteKind, body_bytes
from aliquot.live.store.records import Activation
from aliquot.live.store.writer import WriterThread

MAX_BACKLOG_BYTES = 256 * MIB
MAX_GROUP_ROWS = 8192
MIN_RETRY_DELAY_S = 0.05
MAX_RETRY_DELAY_S = 1.0
# The pause after a group is this many times as long as its write took. Large groups cost far less per row.
REST_FACTOR = 3
MAX_REST_S = 0.03
# The same if several callers wait for durable writes; it is as long as the write took. One caller alone does not wait.
MAX_DURABLE_REST_S = 0.001
ROW_BYTES = 200  # approximate memory of a row without its bodies
MIN_PART_DIVISOR = 8  # an owner may have this part of the total, whatever others have
MAX_FREE_BYTES = 4 * KIB  # the bodies of a record that are not counted for its owner
VALUE_ERRORS = (
    *(ValueError, TypeError, OverflowError),
    *(sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError, sqlite3.IntegrityError),
)

log = structlog.get_logger()


class WriteQueue:
    """Collects writes into groups, and reports failures and overload to the store's health."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        writer: WriterThread,
        write: Callable[[Sequence[Operation]], int],
        explain: Callable[[Exception], StoreError],
        health: StoreHealth,
        *,
        gather_s: float,
        max_bytes: int,
        max_rows: int,
        last_seq: int,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._write = write
        self._explain = explain
        self._health = health
        self._gather_s = gather_s
        self._rest_s = gather_s
        self._durable_from_s = 0.0  # before this time no group is submitted for a durable write
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        # What is left of both limits beside the group that is being written.
        self._max_queued_bytes = max_bytes
        self._max_queued_rows = max_rows
        self.records: dict[str, Activation] = {}  # not durable yet, but readable
        self.last_seq = last_seq  # number of the last durable record. Lists read the file up to it.
        self.commit_times = LatencyHistogram()
        self._queued: list[Operation] = []
        self._group: list[Operation] | None = None  # submitted to the writer thread
        self._submitted_s = 0.0
        self._queued_bytes = 0  # without the bodies that owners pay for
        self._group_bytes = 0
        self._bodies = Budget("records that wait to be written", "bytes", max_bytes)  # by owner
        self._queued_durable = 0  # number of queued durable writes
        # False if no timer runs and no group is being written. The next write must schedule its group then.
        self._scheduled = False
        self._timer: TimerHandle | None = None
        self._failure: StoreError | None = None
        self._stopped = False
        self._retry_s = MIN_RETRY_DELAY_S
        self._group_rows = MAX_GROUP_ROWS

    # --- called by the store ---------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """The number of writes that are not durable yet."""
        return len(self._queued) + len(self._group or ())

    @property
    def waiting_bytes(self) -> int:
        """The bytes of records and journal steps that are not durable yet."""
        return self._queued_bytes + self._group_bytes + self._bodies.used

    def record(self, activation: Activation, size: int) -> None:
        """Queue a record whose bodies have this size. Above a few KiB its owner pays for them."""
        if activation.id in self.records:
            return
        self.records[activation.id] = activation
        self._queued.append(activation)
        if size > MAX_FREE_BYTES:
            self._take(activation.owner, size)
            size = 0
        self._queued_bytes += ROW_BYTES + size
        if (
            not self._scheduled
            or self._queued_bytes > self._max_queued_bytes
            or len(self._queued) > self._max_queued_rows
        ):
            self._after_append()

    @contextmanager
    def counted(self, owner: str, size: int) -> Iterator[None]:
        """Count the bodies of a record while it is written, like those of queued records."""
        if size <= MAX_FREE_BYTES:
            yield
            return
        self._take(owner, size)
        try:
            yield
        finally:
            self._give_back(owner, size)

    def _take(self, owner: str, size: int) -> None:
        """Count bodies that an owner has in records which are not written yet. Beyond its part it is behind."""
        self._bodies.take(owner, size)
        if self._is_behind(owner):
            held = f"{self._bodies.held(owner) / MIB:.1f} MiB"
            self._health.behind[owner] = (
                f"The disk falls behind: {held} of the namespace's results wait to be written; try again later."
            )

    def _is_behind(self, owner: str) -> bool:
        """Return whether an owner has more than its part: half of the rest, at least a fixed part of the total.

        Without the second rule an owner whose running calls return more than the total would keep out all others.
        """
        bodies = self._bodies
        return bodies.held(owner) > max(bodies.total // MIN_PART_DIVISOR, bodies.allowed(owner))

    def _give_back(self, owner: str, size: int) -> None:
        """Count bodies that were written or dropped."""
        self._bodies.give_back(owner, size)
        for each in [each for each in self._health.behind if not self._is_behind(each)]:
            del self._health.behind[each]

    def _give_back_all(self, group: list[Operation]) -> None:
        """Count the bodies of records that were written or dropped, if there are any."""
        for operation in group if self._bodies.used else ():
            if isinstance(operation, Activation) and (size := body_bytes(operation)) > MAX_FREE_BYTES:
                self._give_back(operation.owner, size)

    def journal(self, step: bytes) -> None:
        self._queued.append(step)
        self._queued_bytes += len(step)
        if (
            not self._scheduled
            or self._queued_bytes > self._max_queued_bytes
            or len(self._queued) > self._max_queued_rows
        ):
            self._after_append()

    def open_segment(self, snapshot: bytes) -> None:
        self._queued.append(SegmentStart(snapshot))
        self._queued_bytes += len(snapshot)
        if (
            not self._scheduled
            or self._queued_bytes > self._max_queued_bytes
            or len(self._queued) > self._max_queued_rows
        ):
            self._after_append()

    def add_durable(self, kind: WriteKind, value: Any) -> "Future[None]":  # noqa: ANN401 - by kind
        """Queue a write. The future is done when it is on disk. A cancelled caller's write may still happen."""
        if self._stopped:
            raise StoreError("the store is closed")
        future: Future[None] = self._loop.create_future()
        self._queued.append(DurableWrite(kind, value, future))
        self._queued_durable += 1
        if not self._scheduled or (self._timer is not None and self._queued_durable == 1):
            self._schedule_durable()
        if len(self._queued) > self._max_queued_rows:
            self._update_health()
        return future

    def _after_append(self) -> None:
        """Schedule the next group, and report a queue that has become too long."""
        if not self._scheduled:
            self._schedule(self._rest_s)
        if self._queued_bytes > self._max_queued_bytes or len(self._queued) > self._max_queued_rows:
            self._update_health()

    def _update_health(self) -> None:
        self._max_queued_bytes = self._max_bytes - self._group_bytes
        self._max_queued_rows = self._max_rows - len(self._group or ())
        problem = None if self._failure is None else self._failure.public
        if problem is None and self._queued_bytes > self._max_queued_bytes:
            waiting = self._queued_bytes + self._group_bytes
            problem = f"the disk falls behind: {waiting / MIB:.0f} MiB wait to be written"
        elif problem is None and len(self._queued) > self._max_queued_rows:
            problem = f"the disk falls behind: {self.rows} writes wait"
        self._health.problem = problem

    @property
    def idle(self) -> bool:
        return not self.rows and self._failure is None

    def stop(self) -> None:
        """Submit no more groups. Writes that are still queued are lost."""
        self._stopped = self._scheduled = True
        if self._timer is not None:
            self._timer.cancel()

    # --- groups ----------------------------------------------------------------------------------------------

    def _schedule(self, delay_s: float) -> None:
        self._scheduled = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_s:
            self._timer = self._loop.call_later(delay_s, self._submit_group)
        else:
            # After the callbacks that are ready now, so that their writes join the group.
            self._loop.call_soon(self._submit_group)

    def _schedule_durable(self) -> None:
        """Schedule a group with durable writes: at once, or when the pause after the last group is over."""
        self._schedule(max(0.0, self._durable_from_s - self._loop.time()))

    def _submit_group(self) -> None:
        self._timer = None
        self._group = group = self._queued[: self._group_rows]
        del self._queued[: len(group)]
        if self._queued:  # the group took only part of the queue, which is rare
            self._group_bytes = min(self._queued_bytes, sum(map(_queued_size, group)))
            self._queued_bytes -= self._group_bytes
            self._queued_durable = sum(isinstance(operation, DurableWrite) for operation in self._queued)
        else:
            self._group_bytes, self._queued_bytes, self._queued_durable = self._queued_bytes, 0, 0
        self._update_health()
        self._submitted_s = self._loop.time()
        self._writer.submit(lambda: self._write(group), self._group_done)

    def _group_done(self, last_seq: Any, error: Exception | None) -> None:  # noqa: ANN401 - the writer's jobs differ
        group, self._group = self._group or [], None
        if error is None:
            self._group_succeeded(group, last_seq)
        elif isinstance(error, VALUE_ERRORS):
            self._isolate_bad_value(group, error)
        else:
            self._group_failed(group, error)
        self._update_health()

    def _group_succeeded(self, group: list[Operation], last_seq: int) -> None:
        self.last_seq = last_seq
        self._group_bytes = 0
        self._failure = None
        self._retry_s = MIN_RETRY_DELAY_S
        self._group_rows = min(MAX_GROUP_ROWS, 2 * self._group_rows)
        durable = self._queued_durable  # they came while the group was written
        for operation in group:
            if isinstance(operation, Activation):
                del self.records[operation.id]
            elif isinstance(operation, DurableWrite):
                durable += 1
                if not operation.future.done():
                    operation.future.set_result(None)
        self._give_back_all(group)
        now_s = self._loop.time()
        took_s = now_s - self._submitted_s
        self.commit_times.observe(took_s)
        self._rest_s = max(self._gather_s, min(MAX_REST_S, REST_FACTOR * took_s))
        self._durable_from_s = now_s + min(MAX_DURABLE_REST_S, took_s) if durable > 1 else 0.0
        self._scheduled = False
        if self._queued_durable:
            self._schedule_durable()
        elif self._queued:
            self._schedule(self._rest_s)

    def _group_failed(self, group: list[Operation], error: Exception) -> None:
        self._failure = self._explain(error)
        log.warning("store: cannot write", why=str(self._failure), queued=len(group) + len(self._queued))
        self._requeue(group)
        durables = [operation for operation in self._queued if isinstance(operation, DurableWrite)]
        self._queued = [operation for operation in self._queued if not isinstance(operation, DurableWrite)]
        self._queued_durable = 0
        for durable in durables:
            if not durable.future.done():
                durable.future.set_exception(StoreError(str(self._failure), self._failure.public))
        # Try half as much next time, because a smaller group may still fit on the disk.
        self._group_rows = max(1, min(self._group_rows, len(group)) // 2)
        self._schedule(self._retry_s)
        self._retry_s = min(MAX_RETRY_DELAY_S, 2 * self._retry_s)

    def _isolate_bad_value(self, group: list[Operation], error: Exception) -> None:
        """Retry with half the group, or drop its only write, which SQLite cannot store.

        An example is a text with half a surrogate pair.
        """
        if len(group) > 1:
            self._requeue(group)
            self._group_rows = len(group) // 2
        else:
            (rejected,) = group
            self._group_bytes = 0
            if isinstance(rejected, DurableWrite):
                if not rejected.future.done():
                    why = f"this cannot be stored: {error}"
                    rejected.future.set_exception(StoreError(why, why))
            else:
                if isinstance(rejected, Activation):
                    del self.records[rejected.id]
                    self._give_back_all(group)
                log.error("store: dropped a write that cannot be stored", what=repr(rejected)[:200], why=str(error))
            self._group_rows = MAX_GROUP_ROWS
        self._scheduled = False
        if self._queued:
            self._schedule(0)

    def _requeue(self, group: list[Operation]) -> None:
        self._queued[:0] = group
        self._queued_bytes += self._group_bytes
        self._group_bytes = 0
        self._queued_durable = sum(isinstance(operation, DurableWrite) for operation in self._queued)


def _queued_size(operation: Operation) -> int:
    """Return the approximate memory of a queued write. Durable writes count nothing: their callers bound them."""
    if isinstance(operation, bytes):
        return len(operation)
    if isinstance(operation, Activation):
        size = body_bytes(operation)
        return ROW_BYTES + (size if size <= MAX_FREE_BYTES else 0)
    return len(operation.body) if isinstance(operation, SegmentStart) else 0
