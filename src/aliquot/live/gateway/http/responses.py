"""Answers put together from bytes: an activation's parts are JSON already and are never decoded."""

from collections.abc import Iterator
from typing import TypeAlias

from aliquot.live.store.records import Activation

Headers = tuple[tuple[bytes, bytes], ...]
Body: TypeAlias = bytes | memoryview | list[bytes | memoryview]  # what is large is not joined

JSON = (b"content-type", b"application/json")
PICKLE = b"application/x-aliquot-pickle"
CORS: Headers = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, DELETE, POST, PUT, HEAD"),
    (
        b"access-control-allow-headers",
        b"Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent",
    ),
)
_PIECE_BYTES = 2**18
_STATUS_CODE = b',"statusCode":'
_DIGIT = len(_STATUS_CODE)


def status_of(activation: Activation) -> int:
    """0 success, 1 application error, 2 developer error, 3 internal error."""
    return activation.summary[activation.summary.rindex(_STATUS_CODE) + _DIGIT] - 48


def parts_of(body: Body) -> list[bytes | memoryview]:
    return body if isinstance(body, list) else [body]


def size_of(body: Body) -> int:
    return sum(map(len, parts_of(body)))


def pieces_of(body: Body) -> Iterator[bytes | memoryview]:
    """Small enough that what waits for a slow reader is small."""
    for part in parts_of(body):
        if len(part) <= _PIECE_BYTES:
            yield part
        else:
            view = memoryview(part)
            for begin in range(0, len(view), _PIECE_BYTES):
                yield view[begin : begin + _PIECE_BYTES]


def response(activation: Activation) -> Body:
    return activation.response if activation.large is None else [activation.response, activation.large, b"}"]


def bare_result(activation: Activation) -> Body:
    """Of the response, which has it between its status and its size."""
    if activation.large is not None:
        return activation.large
    body = activation.response
    return body[body.index(b'"result":') + 9 : body.rindex(b',"size":')]


def record(activation: Activation, *, logs: bytes) -> Body:
    """The full record: the list item without its `statusCode`, which a record does not have."""
    summary = activation.summary
    cut = summary.rindex(_STATUS_CODE)  # names and texts cannot hold it: their quotes are escaped
    whole = b"".join((
        summary[:cut],
        summary[cut + _DIGIT + 1 : -1],
        b',"subject":"',
        activation.namespace.encode(),
        b'","logs":',
        logs,
        b',"response":',
        activation.response,
        b"}" if activation.large is None else b"",
    ))  # fmt: skip
    return whole if activation.large is None else [whole, activation.large, b"}}"]
