"""Requests and replies as plain values, and operations, which are independent of how they are sent.

An operation is a generator: it yields requests and pauses, gets replies, and returns its result. A driver
(`aliquot.sdk.client`) runs it, blocking or on an event loop. So each operation is written only once.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from aliquot.runtime.units import KIB

T = TypeVar("T")

PICKLE = "application/x-aliquot-pickle"
JSON = "application/json"
# Pieces of a large body are small, so that the copies on the way to the socket are small, too.
PIECE_BYTES = 256 * KIB


class BodyPieces:
    """A request body in pieces that are not copied into one. It can be sent more than once."""

    __slots__ = ("length", "pieces")

    def __init__(self, pieces: list[memoryview]) -> None:
        self.pieces = pieces
        self.length = sum(len(piece) for piece in pieces)

    def __iter__(self) -> Iterator[memoryview]:
        for piece in self.pieces:
            for start in range(0, len(piece), PIECE_BYTES):
                yield piece[start : start + PIECE_BYTES]


class DeferredPickle(NamedTuple):
    """A value that is pickled when it is sent, because the driver decides where its large buffers go."""

    value: Any
    app: str


class HttpRequest(NamedTuple):
    """A request to the platform, without its address and credentials."""

    method: str
    path: str  # relative to the server's address
    query: Mapping[str, str | int] = {}
    headers: Mapping[str, str] = {}
    body: bytes | BodyPieces | DeferredPickle = b""
    as_operator: bool = False
    timeout_s: float = 90  # the platform holds a blocking call for at most 60 s


class HttpReply(NamedTuple):
    """A reply of the platform."""

    status: int
    headers: Mapping[str, str]  # with names in lower case
    body: bytes
    memory: Any = None  # the shared buffer with the parts that are not in the body

    def json(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        import json

        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None  # for example a proxy's page; the status says enough


class Pause(NamedTuple):
    """A wait in an operation."""

    seconds: float


Operation: TypeAlias = Generator[HttpRequest | Pause, HttpReply | None, T]


def ask(request: HttpRequest) -> Operation[HttpReply]:
    """Send a request and return its reply, as a part of an operation."""
    reply = yield request
    if reply is None:
        raise TypeError("the driver must answer a request with a reply")
    return reply


def pause(seconds: float) -> Operation[None]:
    """Wait, as a part of an operation."""
    yield Pause(seconds)


def to_json(value: object) -> bytes:
    import json

    return json.dumps(value, separators=(",", ":")).encode()
