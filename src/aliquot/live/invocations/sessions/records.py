"""What is kept of a session: what its owner said, and when it was last used. The second is written far more often."""

from typing import Any

from msgspec import Struct

SESSIONS = "sessions"
USES = "session uses"


class SessionSettings(Struct, frozen=True):
    idle_s: float = 30 * 60  # a session that is used by nothing for so long ends
    most: int = 10_000  # that live in one namespace at once
    metadata_bytes: int = 64 * 1024  # as JSON
    write_s: float = 60  # how long a use may wait to be written: after a crash so much of it is forgotten


class Session(Struct, frozen=True):
    id: str  # 32 lower-case hexadecimal digits, as hard to guess as a key
    namespace: str
    name: str = ""
    metadata: dict[str, Any] = {}
    created: int = 0  # epoch ms
    user: str = ""  # whose it is within the namespace; empty: nobody said


class SessionUse(Struct, frozen=True):
    """Counts what had begun when it was written."""

    used: int = 0  # epoch ms
    invocations: int = 0
