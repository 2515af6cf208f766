"""The line of writes before the disk: groups are formed here, on the event loop, and handed to the writer one by one.

All state here belongs to the loop's thread; the writer gets lists that nobody changes any more. A group is handed
over a moment after its first write, at once when someone waits for it, and while one is on its way the next gathers.

When a group fails, those who wait in line are told and their writes are dropped, for a caller that was refused must
not find its write done later. What was written behind stays at the head of the line, in order, and is tried again.
"""

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable, Sequence
from typing import Any

from aliquot.live.records import Activation
from aliquot.live.store.base import StoreError
from aliquot.live.store.operations import Durable, Kind, Operation, Snapshot
from aliquot.live.store.writer import Writer

GROUP_ROWS = 8192
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0
ROW_BYTES = 200  # what a row weighs beside its bodies, roughly


class Backlog:
    def __init__(
        self,
        loop: AbstractEventLoop,
        writer: Writer,
        write: Callable[[Sequence[Operation]], int],
        explain: Callable[[Exception], str],
        *,
        gather_s: float,
        max_bytes: int,
        max_rows: int,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._write = write
        self._explain = explain
        self._gather_s = gather_s
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        self.records: dict[str, Activation] = {}  # not durable yet, but readable
        self.last_seq = 0  # of the records that are durable: what a list may take from the file
        self._line: list[Operation] = []
        self._in_flight: list[Operation] = []
        self._line_bytes = 0
        self._in_flight_bytes = 0
        self._waiters = 0  # how many in the line are waited for
        # True while no new write needs to arrange for the next group: a timer runs or a group is on its way.
        self._arranged = False
        self._timer: TimerHandle | None = None
        self._trouble: str | None = None
        self._retry_s = FIRST_RETRY_S
        self._group_rows = GROUP_ROWS

    # --- from the callers ------------------------------------------------------------------------------------

    def record(self, activation: Activation) -> None:
        if activation.id in self.records:
            return
        self.records[activation.id] = activation
        self._line.append(activation)
        self._line_bytes += _weight(activation)
        if not self._arranged:
            self._arrange(self._gather_s)

    def journal(self, entry: bytes | Snapshot) -> None:
        self._line.append(entry)
        self._line_bytes += len(entry) if isinstance(entry, bytes) else len(entry.body)
        if not self._arranged:
            self._arrange(self._gather_s)

    def durable(self, kind: Kind, value: Any) -> "Future[None]":  # noqa: ANN401 - by kind
        """Done when the disk has it. Raises at once when the disk is known to refuse."""
        if self._trouble is not None:
            raise StoreError(self._trouble)
        future: Future[None] = self._loop.create_future()
        self._line.append(Durable(kind, value, future))
        self._waiters += 1
        if not self._in_flight and (self._timer is not None or not self._arranged):
            self._arrange(0)
        return future

    @property
    def complaint(self) -> str | None:
        if self._trouble is not None:
            return self._trouble
        waiting = self._line_bytes + self._in_flight_bytes
        if waiting > self._max_bytes:
            return f"the disk falls behind: {waiting // 2**20} MiB wait to be written"
        rows = len(self._line) + len(self._in_flight)
        if rows > self._max_rows:
            return f"the disk falls behind: {rows} writes wait"
        return None

    @property
    def idle(self) -> bool:
        return not self._line and not self._in_flight

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
        group = self._line[: self._group_rows]
        del self._line[: len(group)]
        self._in_flight = group
        if self._line:  # only part of it went, which is rare: count again
            self._in_flight_bytes = sum(map(_weight, group))
            self._line_bytes -= self._in_flight_bytes
            self._waiters = sum(isinstance(operation, Durable) for operation in self._line)
        else:
            self._in_flight_bytes, self._line_bytes, self._waiters = self._line_bytes, 0, 0
        self._writer.submit(lambda: self._write(group), self._answered)

    def _answered(self, last_seq: int | None, error: Exception | None) -> None:
        group, self._in_flight = self._in_flight, []
        if error is None and last_seq is not None:
            self._succeeded(group, last_seq)
        elif error is not None:
            self._failed(group, error)

    def _succeeded(self, group: list[Operation], last_seq: int) -> None:
        self.last_seq = last_seq
        self._trouble = None
        self._retry_s = FIRST_RETRY_S
        self._group_rows = min(GROUP_ROWS, 2 * self._group_rows)
        self._in_flight_bytes = 0
        for operation in group:
            if isinstance(operation, Activation):
                del self.records[operation.id]
            elif isinstance(operation, Durable) and not operation.future.done():
                operation.future.set_result(None)
        self._arranged = False
        if self._line:
            self._arrange(0 if self._waiters else self._gather_s)

    def _failed(self, group: list[Operation], error: Exception) -> None:
        self._trouble = self._explain(error)
        everyone = group + self._line
        self._line = [operation for operation in everyone if not isinstance(operation, Durable)]
        self._line_bytes += self._in_flight_bytes
        self._in_flight_bytes = self._waiters = 0
        for operation in everyone:
            if isinstance(operation, Durable) and not operation.future.done():
                operation.future.set_exception(StoreError(self._trouble))
        # Half as much next time: a little room is better used than none.
        self._group_rows = max(1, min(self._group_rows, len(group)) // 2)
        self._arrange(self._retry_s)
        self._retry_s = min(LAST_RETRY_S, 2 * self._retry_s)


def _weight(operation: Operation) -> int:
    """Its bytes, roughly; what is waited for is bounded by those who wait, and counts for nothing."""
    if isinstance(operation, bytes):
        return len(operation)
    if isinstance(operation, Activation):
        pickled = operation.pickled
        bodies = len(operation.summary) + len(operation.response) + len(operation.logs)
        return bodies + ROW_BYTES + (len(pickled) if pickled is not None else 0)
    return len(operation.body) if isinstance(operation, Snapshot) else 0
