"""When a workload's sessions end: as on the live platform, after so long without a call that waits or runs."""

from aliquot.core.clock import after
from aliquot.core.events import SessionEnded
from aliquot.sim.arrivals import Arrival
from aliquot.sim.event_queue import EventQueue

IDLE_TIMEOUT_S = 30 * 60


class SessionUse:
    """Of one session that is under way."""

    __slots__ = ("calls", "end", "ends_at")

    def __init__(self) -> None:
        self.calls = 0  # that have not ended
        self.end = -1  # the entry of the agenda
        self.ends_at: float = 0


class SessionExpiry:
    def __init__(self, agenda: EventQueue) -> None:
        self._agenda = agenda
        self._uses: dict[tuple[str, str], SessionUse] = {}

    def arrived(self, arrival: Arrival, now: float) -> None:
        use = self._uses.setdefault((arrival.tenant, arrival.session or ""), SessionUse())
        use.calls += 1
        if use.ends_at > now:  # otherwise it has ended, and this is another of its name
            self._agenda.cancel(use.end)
            use.ends_at = 0

    def ended(self, arrival: Arrival, now: float) -> None:
        """One of its calls has."""
        key = (arrival.tenant, arrival.session or "")
        use = self._uses[key]
        use.calls -= 1
        if not use.calls:
            use.ends_at = after(now, IDLE_TIMEOUT_S)
            use.end = self._agenda.add(use.ends_at, SessionEnded(*key))
