"""The log's accesses as sessions: the platform's where they name one, else split where nothing happens for a while."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aliquot.core.prefetching.records import audience_of
from aliquot.storage.records import Access

SESSION_IDLE_TIMEOUT_S = 30 * 60.0


class LoggedSession(NamedTuple):
    tenant: str
    audience: str
    accesses: list[Access]

    @property
    def began_s(self) -> float:
        return self.accesses[0].time_s

    @property
    def user(self) -> str:
        return self.accesses[0].user


def split(accesses: Iterable[Access], idle_s: float = SESSION_IDLE_TIMEOUT_S) -> Iterator[LoggedSession]:
    """In the order in which they end. Accesses come in the order in which they happened, or nearly so."""
    under_way: dict[tuple[str, str], LoggedSession] = {}
    for access in accesses:
        key = (access.tenant, audience_of(access.session, access.function))
        session = under_way.get(key)
        # The platform ends idle sessions itself, but an id may be used again: then it is another session.
        if session is not None and access.time_s - session.accesses[-1].time_s > idle_s:
            yield under_way.pop(key)
            session = None
        if session is None:
            under_way[key] = LoggedSession(*key, [access])
        else:
            session.accesses.append(access)
    yield from under_way.values()
