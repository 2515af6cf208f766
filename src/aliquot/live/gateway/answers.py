"""Answers put together from bytes: an activation's parts are JSON already and are never decoded."""

from aliquot.live.records import Activation

Headers = tuple[tuple[bytes, bytes], ...]

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
_STATUS_CODE = b',"statusCode":'
_DIGIT = len(_STATUS_CODE)


def status_of(activation: Activation) -> int:
    """0 success, 1 application error, 2 developer error, 3 internal error."""
    return activation.summary[activation.summary.rindex(_STATUS_CODE) + _DIGIT] - 48


def record(activation: Activation, *, logs: bytes) -> bytes:
    """The full record: the list item without its `statusCode`, which a record does not have."""
    summary = activation.summary
    cut = summary.rindex(_STATUS_CODE)  # names and texts cannot hold it: their quotes are escaped
    return b"".join((
        summary[:cut],
        summary[cut + _DIGIT + 1 : -1],
        b',"subject":"',
        activation.namespace.encode(),
        b'","logs":',
        logs,
        b',"response":',
        activation.response,
        b"}",
    ))  # fmt: skip
