"""Split the log's accesses into sessions: by the platform's session id, else after a pause."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aliquot.core.prefetching.records import audience_of
from aliquot.storage.records import FileAccess

SESSION_IDLE_TIMEOUT_S = 30 * 60.0


class LoggedSession(NamedTuple):
    """The accesses of one session, in the order of the log."""

    tenant: str
    audience: str
    accesses: list[FileAccess]

    @property
    def began_s(self) -> float:
        return self.accesses[0].time_s

    @property
    def user(self) -> str:
        return self.accesses[0].user


def split(accesses: Iterable[FileAccess], idle_s: float = SESSION_IDLE_TIMEOUT_S) -> Iterator[LoggedSession]:
    """Yield sessions in the order in which they end. The accesses are in order of time, or nearly so."""
    running: dict[tuple[str, str], LoggedSession] = {}
    for access in accesses:
        key = (access.tenant, audience_of(access.session, access.function))
        session = running.get(key)
        # The platform ends idle sessions itself, but an id may be used again for another session.
        if session is not None and access.time_s - session.accesses[-1].time_s > idle_s:
            yield running.pop(key)
            session = None
        if session is None:
            running[key] = LoggedSession(*key, [access])
        else:
            session.accesses.append(access)
    yield from running.values()
