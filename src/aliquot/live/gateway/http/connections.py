"""The gateway's open connections: a budget divided by namespace, and a few whose caller is not known yet.

A connection belongs to the namespace whose key came with its last request. Until its first key it is *unknown*. When
there are too many unknown connections, the oldest is closed. A client that sends its request is known within
milliseconds, so connections that send nothing cannot keep others out.
"""

from typing import Protocol

from aliquot.budgets import Budget
from aliquot.live.gateway.http.refusal import CLOSE, Refusal

OPERATOR = "(operator)"  # in budgets; no namespace can have this name
ANONYMOUS = "(callers of {})"  # likewise: a namespace's callers without a key do not use up its own part
SCOPE_KEY = "aliquot.connection"  # in ASGI scopes
_UNKNOWN_PARTS = 6  # one of so many connections may be unknown
_MIN_BACKLOG = 128  # a client that finds no place in a short one waits for a second
_BACKLOG_PARTS = 4  # one of so many may be accepted before others are closed


class Connection(Protocol):
    """A client's connection."""

    payer: str  # the namespace that it belongs to, or empty while the caller is unknown

    def evict(self) -> None:
        """Close the connection at once."""


class Connections:
    """Counts the connections of each namespace, and bounds them."""

    def __init__(self, max_connections: int) -> None:
        self.backlog = max(_MIN_BACKLOG, max_connections // _BACKLOG_PARTS)
        self._max_unknown = max(8, max_connections // _UNKNOWN_PARTS)
        known = max_connections - max_connections // _BACKLOG_PARTS - self._max_unknown
        self._known = Budget("connections", "connections", known)
        self._unknown: dict[Connection, None] = {}  # the oldest first

    def opened(self, connection: Connection) -> None:
        """Count a new connection. If there are too many without a key, the oldest of them is closed."""
        self._unknown[connection] = None
        if len(self._unknown) > self._max_unknown:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.evict()

    def closed(self, connection: Connection) -> None:
        if connection.payer:
            self._known.give_back(connection.payer, 1)
            connection.payer = ""
        else:
            self._unknown.pop(connection, None)

    def assign(self, connection: Connection | None, payer: str) -> None:
        """Count a connection in its caller's part. Raises a 429 that closes it if the caller has too many."""
        if connection is None or connection.payer == payer:
            return
        if not self._known.fits(payer, 1):
            raise Refusal(429, self._known.refusal(payer, 1), CLOSE)
        self.closed(connection)
        self._known.take(payer, 1)
        connection.payer = payer
