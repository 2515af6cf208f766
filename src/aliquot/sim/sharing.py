"""Things that slow down when several use them at once: a device's compute, the bus to it.

Each use has so much left to do if it were alone. Whenever a use begins or ends, what the others have done so far is
counted at the pace that held until then, and the moments at which they will be done are set anew.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from aliquot.core.clock import after
from aliquot.sim.agenda import Agenda, Entry

K = TypeVar("K", bound=Hashable)


class Use:
    """One use of the resource."""

    __slots__ = ("demand", "done", "entry", "left_s", "since", "started")

    def __init__(self, left_s: float, demand: float, now: float, done: Callable[[float, float], Entry]) -> None:
        self.left_s = left_s  # if it were alone from `since` on
        self.demand = demand  # the part of the resource it would take if it were alone
        self.since = self.started = now
        self.done = done  # from when it began and ends, what then happens
        self.entry = -1


class SharedResource(Generic[K]):
    """`stretch` says by how much so many uses at once with so much demand together are slowed down."""

    def __init__(self, agenda: Agenda, stretch: Callable[[int, float], float]) -> None:
        self._agenda = agenda
        self._stretch = stretch
        self._uses: dict[K, Use] = {}
        self._pace: float = 1

    def begin(self, key: K, use: Use, now: float) -> None:
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

    def __contains__(self, key: K) -> bool:
        return key in self._uses

    def _count(self, now: float) -> None:
        for use in self._uses.values():
            use.left_s = max(0.0, use.left_s - (now - use.since) / self._pace)
            use.since = now

    def _set_ends(self, now: float) -> None:
        uses = self._uses
        self._pace = self._stretch(len(uses), sum(use.demand for use in uses.values())) if uses else 1
        for use in uses.values():
            self._agenda.cancel(use.entry)
            at = after(now, use.left_s * self._pace)
            use.entry = self._agenda.add(at, use.done(use.started, at))
