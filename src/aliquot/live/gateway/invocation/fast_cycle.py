"""A request on the fast path, as the HTTP protocol keeps it until its response is sent."""

from aliquot.live.bodies.large import IncomingBody
from aliquot.live.gateway.invocation.exchange import Exchange


class FastCycle:
    """A request on the fast path and its response. uvicorn's protocol expects the attributes of its own cycles."""

    __slots__ = (
        "arrival",
        "exchange",
        "expected",
        "head",
        "identified",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "seen",
        "watched",
    )

    def __init__(self, exchange: Exchange, expected: int, arrival: IncomingBody, *, keep_alive: bool) -> None:
        self.exchange = exchange
        self.expected = expected
        self.keep_alive = keep_alive
        self.arrival = arrival
        self.seen = 0  # bytes received when progress was last checked
        self.watched = False
        self.head = b""  # the bytes of a head that came without its body
        self.identified = False  # the client has given the request an id
        self.more_body = True
        self.response_complete = False
        self.message_event = _NO_EVENT

    @property
    def disconnected(self) -> bool:
        return self.exchange.answered

    @disconnected.setter
    def disconnected(self, _: bool) -> None:
        self.exchange.disconnected()


class _NoEvent:
    """Replaces the event of uvicorn's cycles, which is not awaited on the fast path."""

    def set(self) -> None: ...


_NO_EVENT = _NoEvent()
