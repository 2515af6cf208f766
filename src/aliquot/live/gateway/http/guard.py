"""A connection that defends itself: a request's head has a size, a time and one meaning; who breaks that is told.

uvicorn's own protocol bounds none of these. What is checked costs a plain request two comparisons: only a head that
does not come in one read is counted and watched, and only a body in chunks is weighed against what it is wrapped in.
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
_LINGER_S = 0.5  # for what is still on its way: closing on unread bytes would take our answer back
_LINGER_BYTES = MIB
# A body of single bytes is wrapped in five times its size; more than this is not meant as a body.
_WRAPPING = 8

_log = structlog.get_logger(__name__)


class DrainingParser:
    """Stands for the parser once nothing more is to be understood: it drops what comes, up to a bound."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._left = _LINGER_BYTES

    def feed_data(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()


class DiscardedTrailers(list[tuple[bytes, bytes]]):
    """What comes after a body in chunks. Nobody reads it, so it is not kept."""

    def append(self, _: tuple[bytes, bytes], /) -> None: ...


class GuardedProtocol(HttpToolsProtocol):
    limits: ClassVar[GatewaySettings]
    slow_heads: ClassVar[Deadlines["GuardedProtocol"]]
    ids: ClassVar[Ids]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **kwargs)
        self._heading = False  # a head has begun and is not whole
        self._chunked = False  # a body in chunks is being received
        self._read = 0  # bytes that are being parsed
        self._earlier = 0  # bytes of this head, or of this body with its wrapping, in earlier reads
        self._body_bytes = 0
        self._complaint: Refusal | None = None  # to be said when what was asked before is answered
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
            self.cycle.keep_alive = False  # it stays HTTP/1.1, and what came behind it is lost
        except httptools.HttpParserError as error:
            self._misread(error)
        else:
            if self._heading or self._chunked:
                self._weigh(self._read)

    def begin_head(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._heading = True
        self._chunked = False

    def end_head(self) -> None:
        """Raises a `Refusal` when it is more than a head may be."""
        self._heading = False
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
            raise Refusal(400, "The connection is being closed.")  # nobody will read it

    def check_unusual(self) -> None:
        """What a plain invocation cannot get wrong. Raises a `Refusal`."""
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

    def _weigh(self, size: int) -> None:
        limits = self.limits
        if self._chunked:
            self._earlier += size
            if self._earlier - limits.head_bytes - size > _WRAPPING * self._body_bytes:
                self.refuse_connection(Refusal(400, "The request's body is wrapped in too much else."))
            return
        if not self._earlier:  # it began with this read, which has its own bound
            self._earlier = 1
            self.slow_heads.add(self)
            return
        self._earlier += size
        if len(self.url) > limits.url_bytes:
            self.refuse_connection(Refusal(414, f"The request's URI is longer than {limits.url_bytes} bytes."))
        elif self._earlier > limits.head_bytes:
            self.refuse_connection(_head_too_large(self._earlier, limits.head_bytes))

    def head_too_slow(self) -> None:
        if self._heading:
            self.refuse_connection(Refusal(408, SLOW_HEAD))

    # --- refusing ---------------------------------------------------------------------------------------

    def _misread(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, Refusal):
            self.refuse_connection(cause)
            return
        if cause is not None and not isinstance(cause, httptools.HttpParserError | ValueError):
            _log.error("request failed", exc_info=cause)
        self.refuse_connection(Refusal(400, NOT_HTTP.format(cause or error)))

    def refuse_connection(self, refusal: Refusal) -> None:
        """Nothing more is understood here. What was asked before is answered first."""
        self._heading = self._chunked = False
        self.slow_heads.discard(self)
        self.parser = DrainingParser(self.transport)  # type: ignore[assignment] # as much of one as is needed
        if self.transport.is_closing():
            return
        if self.busy and self.cycle.more_body:
            self._abandon()
        if self.busy:
            self._complaint = refusal
            self.flow.pause_reading()
        else:
            self.complain(refusal)

    def _abandon(self) -> None:
        """The request that is being received will not be whole: it counts as answered."""
        cycle = self.cycle
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            cycle.disconnected = True
        elif not cycle.response_started:
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()

    def complain(self, refusal: Refusal) -> None:
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
