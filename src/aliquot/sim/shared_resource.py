"""A resource that slows down under concurrent use: a device's compute, or the bus to it.

Each use has an amount of work left, in seconds of exclusive use. Whenever a use begins or ends, the work done so far is
counted at the old pace, and the end of every use is scheduled again at the new pace.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from aliquot.core.clock import after
from aliquot.sim.event_queue import EventQueue, QueueEntry

K = TypeVar("K", bound=Hashable)


class ResourceUse:
    """One use of a shared resource. `began` may be before `now` if other work came first."""

    __slots__ = ("began", "demand", "done", "entry", "left_s", "pace", "since")

    def __init__(
        self,
        left_s: float,
        demand: float,
        now: float,
        done: Callable[[float, float], QueueEntry],
        *,
        began: float | None = None,
    ) -> None:
        self.left_s = left_s  # work left at `since`, in seconds of exclusive use
        self.demand = demand  # part of the resource that it would use alone
        self.since = now
        self.began = now if began is None else began
        self.done = done  # makes the queue entry for the end, from the start and end times
        self.pace: float = 1  # seconds that one second of work takes
        self.entry = -1


class SharedResource(Generic[K]):
    """Uses of one resource. `paces` returns the pace of each current use, in order."""

    def __init__(self, queue: EventQueue, paces: Callable[[Mapping[K, ResourceUse]], Iterable[float]]) -> None:
        self._queue = queue
        self._paces = paces
        self._uses: dict[K, ResourceUse] = {}

    def begin(self, key: K, use: ResourceUse, now: float) -> None:
        self._count_work(now)
        self._uses[key] = use
        self._schedule_ends(now)

    def end(self, keys: Iterable[K], now: float, *, done: bool) -> None:
        """Remove uses that end at the same time. With `done` false they are aborted, and their entries cancelled."""
        self._count_work(now)
        for key in keys:
            use = self._uses.pop(key)
            if not done:
                self._queue.cancel(use.entry)
        self._schedule_ends(now)

    def take(self, key: K, now: float) -> ResourceUse:
        """Remove a use that goes on elsewhere, and return it with the work that is left."""
        self._count_work(now)
        use = self._uses.pop(key)
        self._queue.cancel(use.entry)
        use.entry = -1
        self._schedule_ends(now)
        return use

    def update_paces(self, now: float) -> None:
        """Schedule all ends again, after a change that affects the paces."""
        self._count_work(now)
        self._schedule_ends(now)

    def __contains__(self, key: K) -> bool:
        return key in self._uses

    def _count_work(self, now: float) -> None:
        for use in self._uses.values():
            use.left_s = max(0.0, use.left_s - (now - use.since) / use.pace)
            use.since = now

    def _schedule_ends(self, now: float) -> None:
        for use, pace in zip(self._uses.values(), self._paces(self._uses), strict=True):
            use.pace = pace
            self._queue.cancel(use.entry)
            at = after(now, use.left_s * pace)
            use.entry = self._queue.add(at, use.done(use.began, at))
