"""Expiry timers of flows, sandboxes and nodes. The core requests one wake-up at a time from the shell.

Timers are re-armed lazily. A sandbox that is used a thousand times a second keeps one entry in the heap. When the entry
comes first, it is put back if the expiry has moved to a later time.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import TypeAlias

from aliquot.core.clock import grid_time
from aliquot.core.flow import Flow
from aliquot.core.nodes import Node, NodeWait
from aliquot.core.records import Sandbox

Expiring: TypeAlias = Flow | Sandbox | Node | NodeWait

SLACK = 64  # stale entries tolerated


class Timers:
    """A heap of expiry times, at most one current entry per subject."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Expiring]] = []  # nothing is due before the first entry
        self._order = 0
        self._armed = 0  # number of entries that are not stale
        self.announced = inf  # time of the wake-up that was requested from the shell

    def arm(self, subject: Expiring) -> None:
        """Make sure that the subject has an entry no later than its expiry."""
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

    def due(self, now: float) -> Iterator[Expiring]:
        """Yield each subject whose expiry has come."""
        while self.heap and self.heap[0][0] <= now:
            subject = self._take_first(now)
            if subject is not None:
                yield subject

    def _take_first(self, now: float) -> Expiring | None:
        """Remove the first entry. Return its subject if that has expired, and re-arm it if it will expire later."""
        at, _, subject = heappop(self.heap)
        if subject.timer_at != at:  # stale: the subject has an earlier entry
            return None
        subject.timer_at = None
        self._armed -= 1
        if subject.expiry is not None and subject.expiry.at <= now:
            return subject
        self.arm(subject)
        return None

    def woke(self) -> None:
        """Record that the shell's wake-up has come. It may be early, so the next step requests another if needed."""
        self.announced = inf

    def next_wake(self, now: float, requested: float) -> float | None:
        """Return when the shell must wake the core, for a timer or a policy's request, unless it knows already."""
        announced = self.announced
        if announced <= now:
            announced = self.announced = inf
        if self.heap and self.heap[0][0] < announced:
            requested = min(self._first_expiry(), requested)
        if requested >= announced:
            return None
        self.announced = requested = grid_time(requested)
        return requested

    def _first_expiry(self) -> float:
        """Return when the first subject expires, after removing stale entries before it."""
        while self.heap:
            at, _, subject = self.heap[0]
            if subject.expiry is not None and subject.expiry.at == at:
                return at
            self._take_first(-inf)
        return inf
