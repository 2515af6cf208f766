"""The simulator's event queue, ordered by time and, for equal times, by insertion."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from aliquot.core.events import Event, Woke

# An event for the core, or a callback for something that the core does not see, such as the end of a transfer.
QueueEntry: TypeAlias = Event | Callable[[float], None]


class EventQueue:
    """Future events and callbacks. An entry can be cancelled by its number."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueueEntry]] = []
        self._order = 0
        self._cancelled: set[int] = set()  # used for membership tests only, never iterated
        self._wake = -1

    def add(self, at: float, entry: QueueEntry) -> int:
        """Insert an entry and return its number, which `cancel` takes."""
        self._order += 1
        heappush(self._heap, (at, self._order, entry))
        return self._order

    def cancel(self, entry: int) -> None:
        """Cancel an entry that is still in the queue. The number -1 stands for no entry."""
        if entry > 0:
            self._cancelled.add(entry)

    def set_wake(self, at: float) -> None:
        """Schedule the core's wake-up, and cancel the previous one."""
        self.cancel(self._wake)
        self._wake = self.add(at, Woke())

    def take(self, until: float) -> tuple[float, list[Event]]:
        """Return the next time, `until` at the latest, and its events in order. Callbacks of that time are called."""
        heap = self._heap
        if self._cancelled:
            self._drop_cancelled()
        events: list[Event] = []
        if not heap or heap[0][0] > until:
            return until, events
        at = heap[0][0]
        while heap and heap[0][0] == at:
            _, number, entry = heappop(heap)
            if number == self._wake:
                self._wake = -1
            if callable(entry):
                entry(at)
            else:
                events.append(entry)
            if self._cancelled:  # a callback may have cancelled the next one
                self._drop_cancelled()
        return at, events

    def _drop_cancelled(self) -> None:
        """Remove cancelled entries from the front."""
        heap, cancelled = self._heap, self._cancelled
        while heap and heap[0][1] in cancelled:
            cancelled.remove(heappop(heap)[1])
