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
        self.heap: list[tuple[float, int, Flow | Sandbox]] = []  # before the first of them nothing is due
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
        heappush(self.heap, (expiry.at, self._order, subject))
        if len(self.heap) > SLACK + 4 * self._armed:
            self.heap[:] = [entry for entry in self.heap if entry[2].timer_at == entry[0]]
            heapify(self.heap)

    def due(self, now: float) -> Iterator[Flow | Sandbox]:
        """The subjects whose expiry has come, each once."""
        while self.heap and self.heap[0][0] <= now:
            subject = self._take_first(now)
            if subject is not None:
                yield subject

    def _take_first(self, now: float) -> Flow | Sandbox | None:
        """Take the first entry out; returns its subject if it has expired, and puts it back if it will later."""
        at, _, subject = heappop(self.heap)
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
        announced = self._announced
        if announced <= now:
            announced = self._announced = inf
        if self.heap and self.heap[0][0] < announced:
            wish = min(self._first_expiry(), wish)
        if wish >= announced:
            return None
        self._announced = wish
        return wish

    def _first_expiry(self) -> float:
        """When the first subject expires, now that the shell would be asked for that moment."""
        while self.heap:
            at, _, subject = self.heap[0]
            if subject.expiry is not None and subject.expiry.at == at:
                return at
            self._take_first(-inf)
        return inf
