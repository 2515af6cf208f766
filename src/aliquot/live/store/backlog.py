"""The line of writes before the disk: groups are formed here, on the event loop, and handed to the writer one by one.

All state here belongs to the loop's thread; the writer gets lists that nobody changes any more. A group is handed
over a moment after its first write, at once when someone waits for it, and while one is on its way the next gathers.

When a group fails, those who wait in line are told and their writes are dropped, for a caller that was refused must
not find its write done later. What was written behind stays at the head of the line, in order, and is tried again.
Every later call that waits is a new try; without one it is tried now and then, an empty line by an empty write, so
that the complaint ends when its cause does. A value that no file could take is found by halving the group, and left.
"""

import sqlite3
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from aliquot.core.units import MIB
from aliquot.live.store.base import StoreError, StoreHealth
from aliquot.live.store.batch import body_bytes
from aliquot.live.store.operations import Durable, Kind, Operation, Snapshot
from aliquot.live.store.records import Activation
from aliquot.live.store.writer import Writer

GROUP_ROWS = 8192
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0
# The writer rests so many times as long as it worked: larger groups cost far less for each row.
REST = 3
LONGEST_REST_S = 0.03
ROW_BYTES = 200  # what a row weighs beside its bodies, roughly
OF_THE_VALUE = (
    *(ValueError, TypeError, OverflowError),
    *(sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError, sqlite3.IntegrityError),
)

log = structlog.get_logger()


class Backlog:
    def __init__(
        self,
        loop: AbstractEventLoop,
        writer: Writer,
        write: Callable[[Sequence[Operation]], int],
        explain: Callable[[Exception], str],
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
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        # The line's share of both limits, without the group that is on its way.
        self._max_line_bytes = max_bytes
        self._max_line_rows = max_rows
        self.records: dict[str, Activation] = {}  # not durable yet, but readable
        self.last_seq = last_seq  # of the records that are durable: what a list may take from the file
        self._line: list[Operation] = []
        self._group: list[Operation] | None = None  # on its way
        self._handed_s = 0.0
        self._line_bytes = 0
        self._group_bytes = 0
        self._waiters = 0  # how many in the line are waited for
        # False when the next write must arrange for its group: no timer runs and no group is on its way.
        self._arranged = False
        self._timer: TimerHandle | None = None
        self._trouble: str | None = None
        self._stopped = False
        self._retry_s = FIRST_RETRY_S
        self._group_rows = GROUP_ROWS

    # --- from the callers ------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """How many are not durable yet."""
        return len(self._line) + len(self._group or ())

    def record(self, activation: Activation) -> None:
        if activation.id in self.records:
            return
        self.records[activation.id] = activation
        self._line.append(activation)
        self._line_bytes += ROW_BYTES + body_bytes(activation)
        if not self._arranged or self._line_bytes > self._max_line_bytes or len(self._line) > self._max_line_rows:
            self._added()

    def journal(self, step: bytes) -> None:
        self._line.append(step)
        self._line_bytes += len(step)
        if not self._arranged or self._line_bytes > self._max_line_bytes or len(self._line) > self._max_line_rows:
            self._added()

    def open_segment(self, snapshot: bytes) -> None:
        self._line.append(Snapshot(snapshot))
        self._line_bytes += len(snapshot)
        if not self._arranged or self._line_bytes > self._max_line_bytes or len(self._line) > self._max_line_rows:
            self._added()

    def durable(self, kind: Kind, value: Any) -> "Future[None]":  # noqa: ANN401 - by kind
        """Done when the disk has it. If the one who waits is cancelled, it may or may not be written."""
        if self._stopped:
            raise StoreError("the store is closed")
        future: Future[None] = self._loop.create_future()
        self._line.append(Durable(kind, value, future))
        self._waiters += 1
        if not self._arranged or self._timer is not None:
            self._arrange(0)
        if len(self._line) > self._max_line_rows:
            self._update_health()
        return future

    def _added(self) -> None:
        """Arrange for the next group, and report a line that has become too long."""
        if not self._arranged:
            self._arrange(self._rest_s)
        if self._line_bytes > self._max_line_bytes or len(self._line) > self._max_line_rows:
            self._update_health()

    def _update_health(self) -> None:
        self._max_line_bytes = self._max_bytes - self._group_bytes
        self._max_line_rows = self._max_rows - len(self._group or ())
        complaint = self._trouble
        if complaint is None and self._line_bytes > self._max_line_bytes:
            waiting = self._line_bytes + self._group_bytes
            complaint = f"the disk falls behind: {waiting / MIB:.0f} MiB wait to be written"
        elif complaint is None and len(self._line) > self._max_line_rows:
            complaint = f"the disk falls behind: {self.rows} writes wait"
        self._health.complaint = complaint

    @property
    def idle(self) -> bool:
        return not self.rows and self._trouble is None

    def stop(self) -> None:
        """Hand nothing over any more; what has not been written is lost."""
        self._stopped = self._arranged = True
        if self._timer is not None:
            self._timer.cancel()

    # --- to the writer ---------------------------------------------------------------------------------------

    def _arrange(self, delay_s: float) -> None:
        self._arranged = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_s:
            self._timer = self._loop.call_later(delay_s, self._hand_over)
        else:
            # At the end of this turn of the loop: others that are ready now come along.
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._timer = None
        self._group = group = self._line[: self._group_rows]
        del self._line[: len(group)]
        if self._line:  # only part of it went, which is rare: count again
            self._group_bytes = min(self._line_bytes, sum(map(_weight, group)))
            self._line_bytes -= self._group_bytes
            self._waiters = sum(isinstance(operation, Durable) for operation in self._line)
        else:
            self._group_bytes, self._line_bytes, self._waiters = self._line_bytes, 0, 0
        self._update_health()
        self._handed_s = self._loop.time()
        self._writer.submit(lambda: self._write(group), self._answered)

    def _answered(self, last_seq: Any, error: Exception | None) -> None:  # noqa: ANN401 - the writer's jobs differ
        group, self._group = self._group or [], None
        if error is None:
            self._succeeded(group, last_seq)
        elif isinstance(error, OF_THE_VALUE):
            self._halve(group, error)
        else:
            self._failed(group, error)
        self._update_health()

    def _succeeded(self, group: list[Operation], last_seq: int) -> None:
        self.last_seq = last_seq
        self._group_bytes = 0
        self._trouble = None
        self._retry_s = FIRST_RETRY_S
        self._group_rows = min(GROUP_ROWS, 2 * self._group_rows)
        for operation in group:
            if isinstance(operation, Activation):
                del self.records[operation.id]
            elif isinstance(operation, Durable) and not operation.future.done():
                operation.future.set_result(None)
        took_s = self._loop.time() - self._handed_s
        self._rest_s = max(self._gather_s, min(LONGEST_REST_S, REST * took_s))
        self._arranged = False
        if self._line:
            self._arrange(0 if self._waiters else self._rest_s)

    def _failed(self, group: list[Operation], error: Exception) -> None:
        self._trouble = self._explain(error)
        log.warning("store: cannot write", why=self._trouble, waiting=len(group) + len(self._line))
        self._back_in_line(group)
        durables = [operation for operation in self._line if isinstance(operation, Durable)]
        self._line = [operation for operation in self._line if not isinstance(operation, Durable)]
        self._waiters = 0
        for durable in durables:
            if not durable.future.done():
                durable.future.set_exception(StoreError(self._trouble))
        # Half as much next time: a little room is better used than none.
        self._group_rows = max(1, min(self._group_rows, len(group)) // 2)
        self._arrange(self._retry_s)
        self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)

    def _halve(self, group: list[Operation], error: Exception) -> None:
        """One of them holds what cannot be stored, such as half a surrogate pair. Alone in a group, it is the one."""
        if len(group) > 1:
            self._back_in_line(group)
            self._group_rows = len(group) // 2
        else:
            (culprit,) = group
            self._group_bytes = 0
            if isinstance(culprit, Durable):
                if not culprit.future.done():
                    culprit.future.set_exception(StoreError(f"this cannot be stored: {error}"))
            else:
                if isinstance(culprit, Activation):
                    del self.records[culprit.id]
                log.error("store: left out what cannot be stored", what=repr(culprit)[:200], why=str(error))
            self._group_rows = GROUP_ROWS
        self._arranged = False
        if self._line:
            self._arrange(0)

    def _back_in_line(self, group: list[Operation]) -> None:
        self._line[:0] = group
        self._line_bytes += self._group_bytes
        self._group_bytes = 0
        self._waiters = sum(isinstance(operation, Durable) for operation in self._line)


def _weight(operation: Operation) -> int:
    """Its bytes, roughly; what is waited for is bounded by those who wait, and counts for nothing."""
    if isinstance(operation, bytes):
        return len(operation)
    if isinstance(operation, Activation):
        return ROW_BYTES + body_bytes(operation)
    return len(operation.body) if isinstance(operation, Snapshot) else 0
