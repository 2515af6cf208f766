"""The core's alarm clock: the shell is asked for one wake-up at a time, whatever number of things wait.

Subjects are re-armed lazily: a sandbox that is used a thousand times a second keeps one entry here, which is
looked at when it comes up, or when the shell would be asked for it, and put back if the subject's expiry has moved on
meanwhile.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf

from aliquot.core.records import Flow, Sandbox

SLACK = 64  # stale entries tolerated


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Flow | Sandbox]] = []
        self._order = 0
        self._armed = 0  # entries that are not stale
        self._announced = inf  # what the shell has been asked for

    def arm(self, subject: Flow | Sandbox) -> None:
        """See to it that the subject comes up no later than its expiry."""
        expiry = subject.expiry
        if expiry is None or (subject.timer_at is not None and subject.timer_at <= expiry.at):
            return
        self._armed += subject.timer_at is None
        subject.timer_at = expiry.at
        self._order += 1
        heappush(self._heap, (expiry.at, self._order, subject))
        if len(self._heap) > SLACK + 4 * self._armed:
            self._heap[:] = [entry for entry in self._heap if entry[2].timer_at == entry[0]]
            heapify(self._heap)

    @property
    def earliest(self) -> float:
        """Before then nothing is due."""
        return self._heap[0][0] if self._heap else inf

    def due(self, now: float) -> Iterator[Flow | Sandbox]:
        """The subjects whose expiry has come, each once."""
        while self._heap and self._heap[0][0] <= now:
            subject = self._take_first(now)
            if subject is not None:
                yield subject

    def _take_first(self, now: float) -> Flow | Sandbox | None:
        """Take the first entry out; returns its subject if it has expired, and puts it back if it will later."""
        at, _, subject = heappop(self._heap)
        if subject.timer_at != at:  # an earlier one was armed later
            return None
        subject.timer_at = None
        self._armed -= 1
        if subject.expiry is not None and subject.expiry.at <= now:
            return subject
        self.arm(subject)
        return None

    def woke(self) -> None:
        """The shell's wake-up has come, perhaps a little early; ask for another if one is still needed."""
        self._announced = inf

    def next_wake(self, now: float, wish: float) -> float | None:
        """The moment to ask the shell for, if it has not been asked already; others wish for one of their own."""
        if self._announced <= now:
            self._announced = inf
        earliest = wish
        if self._heap and self._heap[0][0] < self._announced:
            earliest = min(self._first_expiry(), earliest)
        if earliest >= self._announced:
            return None
        self._announced = earliest
        return earliest

    def _first_expiry(self) -> float:
        """When the first subject expires, now that the shell would be asked for that moment."""
        while self._heap:
            at, _, subject = self._heap[0]
            if subject.expiry is not None and subject.expiry.at == at:
                return at
            self._take_first(-inf)
        return inf
