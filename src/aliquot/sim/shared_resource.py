"""Things that slow down when several use them at once: a device's compute, the bus to it.

Each use has so much left to do if it were alone. Whenever a use begins or ends, what the others have done so far is
counted at the pace that held until then, and the moments at which they will be done are set anew.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from aliquot.core.clock import after
from aliquot.sim.event_queue import EventQueue, QueueEntry

K = TypeVar("K", bound=Hashable)


class ResourceUse:
    """One use of the resource."""

    __slots__ = ("demand", "done", "entry", "left_s", "pace", "since", "started")

    def __init__(self, left_s: float, demand: float, now: float, done: Callable[[float, float], QueueEntry]) -> None:
        self.left_s = left_s  # if it were alone from `since` on
        self.demand = demand  # the part of the resource it would take if it were alone
        self.since = self.started = now
        self.done = done  # from when it began and ends, what then happens
        self.pace: float = 1  # how long a second of its work takes
        self.entry = -1


class SharedResource(Generic[K]):
    """`paces` says how long a second of each one's work takes while these use it together, in their order."""

    def __init__(self, agenda: EventQueue, paces: Callable[[Mapping[K, ResourceUse]], Iterable[float]]) -> None:
        self._agenda = agenda
        self._paces = paces
        self._uses: dict[K, ResourceUse] = {}

    def begin(self, key: K, use: ResourceUse, now: float) -> None:
        self._count(now)
        self._uses[key] = use
        self._set_ends(now)

    def end(self, keys: Iterable[K], now: float, *, done: bool) -> None:
        """These uses, all of one moment, are over: done, so that their entries have come up, or given up."""
        self._count(now)
        for key in keys:
            use = self._uses.pop(key)
            if not done:
                self._agenda.cancel(use.entry)
        self._set_ends(now)

    def divide_anew(self, now: float) -> None:
        """What the paces depend on has changed."""
        self._count(now)
        self._set_ends(now)

    def __contains__(self, key: K) -> bool:
        return key in self._uses

    def _count(self, now: float) -> None:
        for use in self._uses.values():
            use.left_s = max(0.0, use.left_s - (now - use.since) / use.pace)
            use.since = now

    def _set_ends(self, now: float) -> None:
        for use, pace in zip(self._uses.values(), self._paces(self._uses), strict=True):
            use.pace = pace
            self._agenda.cancel(use.entry)
            at = after(now, use.left_s * pace)
            use.entry = self._agenda.add(at, use.done(use.started, at))
