"""Live sessions in memory: their running invocations, and when each was last used. Time is an argument.

All sessions have the same idle timeout, so they expire in the order of their last use. Idle sessions are kept in that
order. A session with running invocations is not idle.
"""

import asyncio
from collections.abc import Iterable

from aliquot.live.invocations.sessions.records import Session, SessionUse


class LiveSession:
    """One session with its usage."""

    __slots__ = ("busy", "ending", "invocations", "session", "touched", "used_ms", "used_s", "writing")

    def __init__(self, session: Session, use: SessionUse, used_s: float) -> None:
        self.session = session
        self.used_ms = use.used
        self.used_s = used_s  # on the monotonic clock
        self.invocations = use.invocations
        self.busy = 0  # running invocations
        self.touched = False  # used since its usage was last written
        self.ending = False
        self.writing = asyncio.Lock()  # held while the session is changed or ended

    def use(self) -> SessionUse:
        return SessionUse(self.used_ms, self.invocations)


class LiveSessions:
    """All live sessions, by namespace and id."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, LiveSession]] = {}  # in order of creation
        self._idle: dict[str, LiveSession] = {}  # least recently used first

    def find(self, namespace: str, session_id: str) -> LiveSession | None:
        return self._by_namespace.get(namespace, {}).get(session_id)

    def user_of(self, namespace: str, session_id: str) -> str:
        """Return the user of a session. It is empty if none was given or the session does not exist."""
        live = self.find(namespace, session_id)
        return "" if live is None else live.session.user

    def all(self, namespace: str) -> list[LiveSession]:
        return list(self._by_namespace.get(namespace, {}).values())

    def count(self, namespace: str) -> int:
        return len(self._by_namespace.get(namespace, ()))

    def add(self, live: LiveSession) -> None:
        session = live.session
        self._by_namespace.setdefault(session.namespace, {})[session.id] = live
        self._idle[session.id] = live

    def add_all(self, found: Iterable[LiveSession]) -> None:
        """Add the sessions of an earlier server, in any order."""
        by_creation = sorted(found, key=lambda live: live.session.created)
        for live in by_creation:
            self.add(live)
        self._idle = {live.session.id: live for live in sorted(by_creation, key=lambda live: live.used_s)}

    def remove(self, live: LiveSession) -> None:
        session = live.session
        mine = self._by_namespace.get(session.namespace, {})
        mine.pop(session.id, None)
        if not mine:
            self._by_namespace.pop(session.namespace, None)
        self._idle.pop(session.id, None)

    def begin(self, namespace: str, session_id: str, *, now_s: float, now_ms: int) -> None:
        """Count an invocation that begins. `finish` reports its end. An ended session is ignored."""
        live = self.find(namespace, session_id)
        if live is None:
            return
        live.busy += 1
        live.invocations += 1
        self._touch(live, now_s, now_ms)
        self._idle.pop(session_id, None)

    def finish(self, namespace: str, session_id: str, *, now_s: float, now_ms: int) -> None:
        """Count an invocation that has ended. An ended session is ignored."""
        live = self.find(namespace, session_id)
        if live is None:
            return
        live.busy -= 1
        self._touch(live, now_s, now_ms)
        if not live.busy:
            self._idle[session_id] = live

    def idle_since(self, moment_s: float) -> list[LiveSession]:
        """Return the sessions that were last used at this moment or earlier."""
        found = []
        for live in self._idle.values():
            if live.used_s > moment_s:
                break
            found.append(live)
        return found

    def take_touched(self) -> list[LiveSession]:
        """Return the sessions that were used since the last call."""
        found = [live for mine in self._by_namespace.values() for live in mine.values() if live.touched]
        for live in found:
            live.touched = False
        return found

    def _touch(self, live: LiveSession, now_s: float, now_ms: int) -> None:
        live.used_s, live.used_ms, live.touched = now_s, now_ms, True
