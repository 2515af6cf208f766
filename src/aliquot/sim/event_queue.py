"""What is going to happen, in order of time; equal times in order of entry."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from aliquot.core.events import Event, Woke

# What the core is told, or something that happens behind its back, such as the end of a transfer.
QueueEntry: TypeAlias = Event | Callable[[float], None]


class EventQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueueEntry]] = []
        self._order = 0
        self._cancelled: set[int] = set()  # asked for membership only, never iterated
        self._wake = -1

    def add(self, at: float, entry: QueueEntry) -> int:
        """Returns the entry's number, to cancel it by."""
        self._order += 1
        heappush(self._heap, (at, self._order, entry))
        return self._order

    def cancel(self, entry: int) -> None:
        """Only an entry that has not come up yet; -1 is none."""
        if entry > 0:
            self._cancelled.add(entry)

    def set_wake(self, at: float) -> None:
        """Wake the core then, and not when it was to be woken before."""
        self.cancel(self._wake)
        self._wake = self.add(at, Woke())

    def take(self, until: float) -> tuple[float, list[Event]]:
        """The next moment, `until` at the latest, and all its events, in order; what else happens then is done."""
        heap, cancelled = self._heap, self._cancelled
        if cancelled:
            while heap and heap[0][1] in cancelled:
                cancelled.remove(heappop(heap)[1])
        events: list[Event] = []
        if not heap or heap[0][0] > until:
            return until, events
        at = heap[0][0]
        while heap and heap[0][0] == at:
            _, number, entry = heappop(heap)
            if number in cancelled:
                cancelled.remove(number)
                continue
            if number == self._wake:
                self._wake = -1
            if callable(entry):
                entry(at)
            else:
                events.append(entry)
        return at, events
