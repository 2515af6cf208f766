"""Response headers and bodies, built from bytes: the parts of an activation are stored as JSON and never decoded."""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from aliquot.live.store.records import Activation, name_of_owner

Headers = tuple[tuple[bytes, bytes], ...]
Body: TypeAlias = bytes | memoryview | list[bytes | memoryview]  # parts are not joined: some are large

JSON = (b"content-type", b"application/json")
PICKLE = b"application/x-aliquot-pickle"
SAFETENSORS = b"application/x-safetensors"  # arrays for kernel graphs
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
    """Return the status: 0 success, 1 application error, 2 developer error, 3 internal error."""
    return activation.summary[activation.summary.rindex(_STATUS_CODE) + _DIGIT] - 48


def failure_of(activation: Activation) -> str:
    """Return how a run has ended that did not reply, in our own words."""
    notes = msgspec.json.decode(activation.summary)["annotations"]
    return next((str(note["value"]) for note in notes if note["key"] == "failure"), "")


def parts_of(body: Body) -> list[bytes | memoryview]:
    return body if isinstance(body, list) else [body]


def size_of(body: Body) -> int:
    return sum(map(len, parts_of(body)))


def pieces_of(body: Body) -> Iterator[bytes | memoryview]:
    """Cut a body into pieces, so that little of it is buffered for a slow reader."""
    for part in parts_of(body):
        if len(part) <= _PIECE_BYTES:
            yield part
        else:
            view = memoryview(part)
            for begin in range(0, len(view), _PIECE_BYTES):
                yield view[begin : begin + _PIECE_BYTES]


def response_body(activation: Activation) -> Body:
    return activation.response if activation.large is None else [activation.response, activation.large, b"}"]


def result_body(activation: Activation) -> Body:
    """Return the result alone, cut from the response where it lies between status and size."""
    if activation.large is not None:
        return activation.large
    body = activation.response
    return body[body.index(b'"result":') + 9 : body.rindex(b',"size":')]


def record_body(activation: Activation, *, logs: bytes) -> Body:
    """Return the full record: the list item without `statusCode`, with logs and response."""
    summary = activation.summary
    cut = summary.rindex(_STATUS_CODE)  # no string contains it, because quotes are escaped
    whole = b"".join((
        summary[:cut],
        summary[cut + _DIGIT + 1 : -1],
        b',"subject":"',
        name_of_owner(activation.owner).encode(),
        b'","logs":',
        logs,
        b',"response":',
        activation.response,
        b"}" if activation.large is None else b"",
    ))  # fmt: skip
    return whole if activation.large is None else [whole, activation.large, b"}}"]
