"""Stored records of a session: its description, and its usage, which is written far more often."""

from typing import Any

from msgspec import Struct

SESSIONS = "sessions"
USES = "session uses"


class SessionSettings(Struct, frozen=True):
    """Limits and intervals of sessions."""

    idle_s: float = 30 * 60  # a session that is not used for this long ends
    max_live: int = 10_000  # sessions of a namespace at once
    metadata_bytes: int = 64 * 1024  # size as JSON
    write_s: float = 60  # usage is written this often, so a crash loses at most that much of it


class Session(Struct, frozen=True):
    """A session as its owner described it."""

    id: str  # 32 lower-case hexadecimal digits, as hard to guess as a key
    namespace: str
    name: str = ""
    metadata: dict[str, Any] = {}
    created: int = 0  # epoch ms
    user: str = ""  # the user within the namespace, or empty
    owner: str = ""  # `Namespace.owner`; empty in sessions from before owners were stored


class SessionUse(Struct, frozen=True):
    """The last use and the number of invocations at the time of writing."""

    used: int = 0  # epoch ms
    invocations: int = 0
