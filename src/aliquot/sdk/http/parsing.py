"""Parsers of replies: that of `httptools`, or one of our own where it is not installed, as in many sandboxes.

Both call `on_header`, `on_headers_complete`, `on_body` and `on_message_complete` of their reader.
"""

from typing import Any, Protocol, cast

MAX_HEAD_BYTES = 256 * 1024
_LENGTH, _CODING, _CONNECTION = b"content-length", b"transfer-encoding", b"connection"
_END = b"\r\n"
_HEXADECIMAL = b"0123456789abcdefABCDEF"
_NO_BODY = {204, 304}


def _installed() -> Any:  # noqa: ANN401 - the module, or None
    try:
        import httptools
    except ModuleNotFoundError:
        return None
    return httptools


httptools = _installed()


class ReplyParser(Protocol):
    """The part of httptools' parser that is used here."""

    def feed_data(self, data: bytes | memoryview) -> None: ...
    def get_status_code(self) -> int: ...
    def should_keep_alive(self) -> bool: ...


class NotHttpError(Exception):
    """The bytes are no reply of HTTP."""


PARSER_ERRORS: tuple[type[Exception], ...] = (
    (NotHttpError,) if httptools is None else (NotHttpError, httptools.HttpParserError)
)


def new_parser(reader: Any) -> ReplyParser:  # noqa: ANN401 - an object with the four methods
    """Return a parser for the replies of one connection."""
    if httptools is None:
        return PlainReplyParser(reader)
    return cast("ReplyParser", httptools.HttpResponseParser(reader))


class PlainReplyParser:
    """A parser of replies in the standard library: bodies of a length, in chunks, or up to the end."""

    def __init__(self, reader: Any) -> None:  # noqa: ANN401 - see above
        self._reader = reader
        self._data = bytearray()
        self._status = 0
        self._left: int | None = None  # bytes of the body or the chunk; None: up to the end of the connection
        self._chunked = False
        self._keeps = False
        self._next = self._head

    def feed_data(self, data: bytes | memoryview) -> None:
        self._data += data
        while self._next():
            pass

    def get_status_code(self) -> int:
        return self._status

    def should_keep_alive(self) -> bool:
        return self._keeps

    def _head(self) -> bool:
        end = self._data.find(_END + _END)
        if end < 0:
            if len(self._data) > MAX_HEAD_BYTES:
                raise NotHttpError(f"the head has more than {MAX_HEAD_BYTES} bytes")
            return False
        first, *lines = bytes(self._data[:end]).split(_END)
        del self._data[: end + 4]
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise NotHttpError(f"its first line is {first[:80]!r}")
        self._status = int(rest[:3])
        fields = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise NotHttpError(f"a line of its head is {line[:80]!r}")
            fields[name.lower()] = value.strip()
            self._reader.on_header(name, value.strip())
        self._measure(fields, version)
        self._reader.on_headers_complete()
        return True

    def _measure(self, fields: dict[bytes, bytes], version: bytes) -> None:
        """Note how long the body is, and what reads it."""
        self._chunked = fields.get(_CODING, b"").lower().endswith(b"chunked")
        length = fields.get(_LENGTH)
        if length is not None and not length.isdigit():
            raise NotHttpError(f"its length is {length[:80]!r}")
        self._left = None if length is None else int(length)
        none = self._status < 200 or self._status in _NO_BODY  # noqa: PLR2004 - a message before the reply
        if none:
            self._left, self._chunked = 0, False
        closes = fields.get(_CONNECTION, b"").lower() == b"close" or version == b"HTTP/1.0"
        self._keeps = not closes and (self._chunked or self._left is not None)
        self._next = self._chunk_head if self._chunked else self._body

    def _body(self) -> bool:
        if self._left is None:
            self._pass_on(len(self._data))
            return False
        self._left -= self._pass_on(min(self._left, len(self._data)))
        if self._left:
            return False
        if self._chunked:
            self._next = self._chunk_end
            return True
        return self._complete()

    def _pass_on(self, count: int) -> int:
        if count:
            self._reader.on_body(bytes(self._data[:count]))
            del self._data[:count]
        return count

    def _line(self) -> bytes | None:
        end = self._data.find(_END)
        if end < 0:
            if len(self._data) > MAX_HEAD_BYTES:
                raise NotHttpError("a line of a chunk is too long")
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        return line

    def _chunk_head(self) -> bool:
        line = self._line()
        if line is None:
            return False
        length = line.partition(b";")[0].strip()
        if not length or length.strip(_HEXADECIMAL):
            raise NotHttpError(f"the length of a chunk is {line[:80]!r}")
        self._left = int(length, 16)
        self._next = self._body if self._left else self._trailer
        return True

    def _chunk_end(self) -> bool:
        line = self._line()
        if line:
            raise NotHttpError("a chunk is longer than it says")
        if line is not None:
            self._next = self._chunk_head
        return line is not None

    def _trailer(self) -> bool:
        line = self._line()
        if line:
            return True  # a field behind the body, which nothing reads
        return line is not None and self._complete()

    def _complete(self) -> bool:
        self._next = self._head
        self._reader.on_message_complete()
        return bool(self._data)
