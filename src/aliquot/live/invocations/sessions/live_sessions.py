"""The sessions that live, in memory: who uses which, and since when each is idle. No I/O, and time is an argument.

All sessions may be idle for the same time, so that the one whose last use is longest ago ends first: the idle ones are
kept in that order, and what invocations use is not among them.
"""

import asyncio
from collections.abc import Iterable

from aliquot.live.invocations.sessions.records import Session, SessionUse


class LiveSession:
    """One session and its uses."""

    __slots__ = ("busy", "ending", "invocations", "session", "touched", "used_ms", "used_s", "writing")

    def __init__(self, session: Session, use: SessionUse, used_s: float) -> None:
        self.session = session
        self.used_ms = use.used
        self.used_s = used_s  # by a clock that never jumps
        self.invocations = use.invocations
        self.busy = 0  # invocations of it that have not ended
        self.touched = False  # used since its use was last written
        self.ending = False
        self.writing = asyncio.Lock()  # to be held by whoever changes or ends it

    def use(self) -> SessionUse:
        return SessionUse(self.used_ms, self.invocations)


class LiveSessions:
    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, LiveSession]] = {}  # each namespace's in the order they were made
        self._idle: dict[str, LiveSession] = {}  # least recently used first

    def find(self, namespace: str, session_id: str) -> LiveSession | None:
        return self._by_namespace.get(namespace, {}).get(session_id)

    def user_of(self, namespace: str, session_id: str) -> str:
        """Empty where nobody said, and where no such session lives."""
        living = self.find(namespace, session_id)
        return "" if living is None else living.session.user

    def all(self, namespace: str) -> list[LiveSession]:
        return list(self._by_namespace.get(namespace, {}).values())

    def count(self, namespace: str) -> int:
        return len(self._by_namespace.get(namespace, ()))

    def add(self, living: LiveSession) -> None:
        session = living.session
        self._by_namespace.setdefault(session.namespace, {})[session.id] = living
        self._idle[session.id] = living

    def add_all(self, found: Iterable[LiveSession]) -> None:
        """At start, in any order."""
        by_creation = sorted(found, key=lambda living: living.session.created)
        for living in by_creation:
            self.add(living)
        self._idle = {living.session.id: living for living in sorted(by_creation, key=lambda living: living.used_s)}

    def remove(self, living: LiveSession) -> None:
        session = living.session
        mine = self._by_namespace.get(session.namespace, {})
        mine.pop(session.id, None)
        if not mine:
            self._by_namespace.pop(session.namespace, None)
        self._idle.pop(session.id, None)

    def begin(self, namespace: str, session_id: str, *, now_s: float, now_ms: int) -> None:
        """An invocation of it begins, and its end will be told by `finish`; passed over when it lives no longer."""
        living = self.find(namespace, session_id)
        if living is None:
            return
        living.busy += 1
        living.invocations += 1
        self._touch(living, now_s, now_ms)
        self._idle.pop(session_id, None)

    def finish(self, namespace: str, session_id: str, *, now_s: float, now_ms: int) -> None:
        """An invocation of it has ended; passed over when the session has ended before."""
        living = self.find(namespace, session_id)
        if living is None:
            return
        living.busy -= 1
        self._touch(living, now_s, now_ms)
        if not living.busy:
            self._idle[session_id] = living

    def idle_since(self, moment_s: float) -> list[LiveSession]:
        """Those that nothing has used since then, or longer."""
        found = []
        for living in self._idle.values():
            if living.used_s > moment_s:
                break
            found.append(living)
        return found

    def take_touched(self) -> list[LiveSession]:
        """Those whose use has changed since they were last taken."""
        found = [living for mine in self._by_namespace.values() for living in mine.values() if living.touched]
        for living in found:
            living.touched = False
        return found

    def _touch(self, living: LiveSession, now_s: float, now_ms: int) -> None:
        living.used_s, living.used_ms, living.touched = now_s, now_ms, True
