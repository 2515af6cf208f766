"""The end of simulated sessions: after 30 minutes without a waiting or running call, as on the live platform."""

from aliquot.core.clock import after
from aliquot.core.events import SessionEnded
from aliquot.sim.arrivals import Arrival
from aliquot.sim.event_queue import EventQueue

IDLE_TIMEOUT_S = 30 * 60


class SessionUse:
    """The open calls of one session, and its scheduled end."""

    __slots__ = ("calls", "end", "ends_at")

    def __init__(self) -> None:
        self.calls = 0  # calls that have not ended
        self.end = -1  # queue entry of the session's end
        self.ends_at: float = 0


class SessionExpiry:
    """Schedules the end of each session when its last open call has ended."""

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue
        self._uses: dict[tuple[str, str], SessionUse] = {}

    def arrived(self, arrival: Arrival, now: float) -> None:
        """Count a call of the session, and cancel the session's scheduled end."""
        use = self._uses.setdefault((arrival.tenant, arrival.session or ""), SessionUse())
        use.calls += 1
        if use.ends_at > now:  # otherwise the session has ended, and a new one with the same name begins
            self._queue.cancel(use.end)
            use.ends_at = 0

    def ended(self, arrival: Arrival, now: float) -> None:
        """Record the end of a call, and schedule the session's end after its last open call."""
        key = (arrival.tenant, arrival.session or "")
        use = self._uses[key]
        use.calls -= 1
        if not use.calls:
            use.ends_at = after(now, IDLE_TIMEOUT_S)
            use.end = self._queue.add(use.ends_at, SessionEnded(*key))
