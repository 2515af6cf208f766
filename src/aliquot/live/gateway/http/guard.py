"""An HTTP protocol that limits a request's head in size and time, and refuses heads that can be read in two ways.

uvicorn's own protocol has no such limits. The checks cost a plain request two comparisons. Only a head that needs more
than one read is measured and timed, and only for a chunked body are the bytes of its framing counted.
"""

import asyncio
from typing import Any, ClassVar

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from aliquot.core.units import MIB
from aliquot.live.gateway.http.deadlines import Deadlines
from aliquot.live.gateway.http.refusal import CLOSE, Refusal
from aliquot.live.gateway.http.responses import CORS, JSON
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.ids import Ids

SLOW_HEAD = "The request's head did not arrive in time."
NOT_HTTP = "The request is not valid HTTP: {}."
# Closing a connection with unread bytes resets it, and the client may lose our response. So we read on for a while.
_LINGER_S = 0.5
_LINGER_BYTES = MIB
# The framing of a chunked body may be this many times as large as the body. With chunks of one byte it is five times.
_MAX_FRAMING_RATIO = 8

_log = structlog.get_logger(__name__)


class DrainingParser:
    """Replaces the parser of a refused connection: discards further input up to a limit."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._remaining_bytes = _LINGER_BYTES

    def feed_data(self, data: bytes) -> None:
        self._remaining_bytes -= len(data)
        if self._remaining_bytes < 0:
            self._transport.abort()


class DiscardedTrailers(list[tuple[bytes, bytes]]):
    """A list of headers that keeps nothing, for the unused trailers of a chunked body."""

    def append(self, _: tuple[bytes, bytes], /) -> None: ...


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on request heads and chunked framing."""

    limits: ClassVar[GatewaySettings]
    slow_heads: ClassVar[Deadlines["GuardedProtocol"]]
    ids: ClassVar[Ids]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **kwargs)
        self._between = True  # the parser has read all requests so far to their ends
        self._in_head = False  # a head has begun and is incomplete
        self._chunked = False  # a chunked body is being received
        self._read = 0  # bytes that are being parsed
        self._earlier = 0  # bytes of this head, or of this body with its framing, in earlier reads
        self._body_bytes = 0
        self._pending_refusal: Refusal | None = None  # to be sent after the responses to earlier requests
        self._lingering: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    # --- receiving --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._read = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # it stays HTTP/1.1, and the bytes that followed are lost
        except httptools.HttpParserError as error:
            self._refuse_parse_error(error)
        else:
            if self._in_head or self._chunked:
                self._measure(self._read)

    def begin_head(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True
        self._between = self._chunked = False

    def end_head(self) -> None:
        """Check the size of the head that has just been parsed. Raises a `Refusal`."""
        self._in_head = False
        limits = self.limits
        if self._earlier or self._read > limits.head_bytes:
            self._earlier = 0
            self.slow_heads.discard(self)
            size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
            if size > limits.head_bytes and len(self.url) <= limits.url_bytes:
                raise _head_too_large(size, limits.head_bytes)
        if len(self.url) > limits.url_bytes:
            raise Refusal(414, f"The request's URI is longer than allowed: {len(self.url)} > {limits.url_bytes} bytes.")
        if len(self.headers) > limits.head_fields:
            raise Refusal(431, f"It has more headers than allowed: {len(self.headers)} > {limits.head_fields}.")
        if self.transport.is_closing():
            raise Refusal(400, "The connection is being closed.")  # never sent

    def check_unusual(self) -> None:
        """Check what the fast path for invocations need not check. Raises a `Refusal`."""
        version = self.parser.get_http_version()
        if version not in {"1.1", "1.0"}:
            raise Refusal(505, f"HTTP/{version} is not spoken here; HTTP/1.1 is.")
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise Refusal(400, "The request must have one header Host.")
        if names.count(b"transfer-encoding") > 1:
            raise Refusal(400, "The header transfer-encoding was given more than once.")
        if self.url.startswith(b"*") or self.parser.get_method() == b"CONNECT":
            raise Refusal(400, "The request's URI must be a path.")
        has_body = b"transfer-encoding" in names or dict(self.headers).get(b"content-length", b"0").strip() != b"0"
        if has_body and self.parser.should_upgrade():  # the parser would take the body for another protocol
            raise Refusal(400, "A request that asks for an upgrade cannot have a body here.")
        self._chunked = b"transfer-encoding" in names
        self._body_bytes = self._earlier = 0

    def _measure(self, size: int) -> None:
        """Count the bytes of an incomplete head or a chunked body, and refuse too many."""
        limits = self.limits
        if self._chunked:
            self._earlier += size
            if self._earlier - limits.head_bytes - size > _MAX_FRAMING_RATIO * self._body_bytes:
                self.refuse_connection(Refusal(400, "The request's body is wrapped in too much else."))
            return
        if not self._earlier:  # it began with this read, whose size is limited anyway
            self._earlier = 1
            self.slow_heads.add(self)
            return
        self._earlier += size
        if len(self.url) > limits.url_bytes:
            self.refuse_connection(Refusal(414, f"The request's URI is longer than {limits.url_bytes} bytes."))
        elif self._earlier > limits.head_bytes:
            self.refuse_connection(_head_too_large(self._earlier, limits.head_bytes))

    def head_too_slow(self) -> None:
        """Refuse a head that is still incomplete when its time is over."""
        if self._in_head:
            self.refuse_connection(Refusal(408, SLOW_HEAD))

    # --- refusing ---------------------------------------------------------------------------------------

    def _refuse_parse_error(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, Refusal):
            self.refuse_connection(cause)
            return
        if cause is not None and not isinstance(cause, httptools.HttpParserError | ValueError):
            _log.error("request failed", exc_info=cause)
        self.refuse_connection(Refusal(400, NOT_HTTP.format(cause or error)))

    def refuse_connection(self, refusal: Refusal) -> None:
        """Stop parsing, and refuse the request once earlier requests are answered."""
        self._between = self._in_head = self._chunked = False
        self.slow_heads.discard(self)
        self.parser = DrainingParser(self.transport)  # type: ignore[assignment] # it has the one method that is used
        if self.transport.is_closing():
            return
        if self.busy and self.cycle.more_body:
            self._abandon()
        if self.busy:
            self._pending_refusal = refusal
            self.flow.pause_reading()
        else:
            self.send_refusal(refusal)

    def _abandon(self) -> None:
        """Treat the request whose body is incomplete as answered."""
        cycle = self.cycle
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            cycle.disconnected = True
        elif not cycle.response_started:
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()

    def send_refusal(self, refusal: Refusal) -> None:
        """Send the refusal, and close the connection after a moment."""
        transaction = self.ids()
        body = refusal.body(transaction)
        headers = (JSON, (b"x-request-id", transaction.encode()), *CLOSE, *CORS)
        head = STATUS_LINE[refusal.status] + b"".join([b"%b: %b\r\n" % pair for pair in headers])
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._lingering = self.loop.call_later(_LINGER_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self.slow_heads.discard(self)
        if self._lingering is not None:
            self._lingering.cancel()
        super().connection_lost(exc)


def _head_too_large(size: int, allowed: int) -> Refusal:
    return Refusal(431, f"The request's head is larger than allowed: {size} > {allowed} bytes.")
