"""Requests and replies as plain values, and the operations made of them, which know nothing of how they are carried.

An operation is a generator: it yields requests and pauses, gets replies, and returns its result. A driver
(`aliquot.sdk.client`) carries one out, blocking or on an event loop, so that nothing is written twice.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

PICKLE = "application/x-aliquot-pickle"
JSON = "application/json"
# Pieces of a large body: small enough that the copies made on the way to the socket stay small, too.
PIECE_BYTES = 2**18


class Body:
    """A request's body in pieces that were not copied together; it may be sent more than once."""

    __slots__ = ("length", "pieces")

    def __init__(self, pieces: list[memoryview]) -> None:
        self.pieces = pieces
        self.length = sum(len(piece) for piece in pieces)

    def __iter__(self) -> Iterator[memoryview]:
        for piece in self.pieces:
            for start in range(0, len(piece), PIECE_BYTES):
                yield piece[start : start + PIECE_BYTES]


class Apart(NamedTuple):
    """A value that is pickled when it is sent: how it is sent then decides where its large buffers go."""

    value: Any
    app: str


class Request(NamedTuple):
    method: str
    path: str  # below the server's address
    query: Mapping[str, str | int] = {}
    headers: Mapping[str, str] = {}
    body: bytes | Body | Apart = b""
    as_operator: bool = False
    patience_s: float = 90  # for the answer: the platform holds a blocking call for at most 60 s


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]  # httpx's: names in any case
    body: bytes
    memory: Any = None  # with what is not in the body: the parcel that came

    def json(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        import json

        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None  # a proxy's page, say; the status tells enough


class Pause(NamedTuple):
    seconds: float


Operation: TypeAlias = Generator[Request | Pause, Reply | None, T]


def ask(request: Request) -> Operation[Reply]:
    reply = yield request
    if reply is None:
        raise TypeError("the driver must answer a request with a reply")
    return reply


def pause(seconds: float) -> Operation[None]:
    yield Pause(seconds)


def to_json(value: object) -> bytes:
    import json

    return json.dumps(value, separators=(",", ":")).encode()
