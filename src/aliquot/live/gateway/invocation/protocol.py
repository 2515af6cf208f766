"""HTTP with a short way for invocations: uvicorn's own protocol, but a plain POST to an action skips ASGI.

What is skipped is a task, an event, a scope, two messages and their checks for every call: half of what a warm call
costs. A request that is in any way unusual (a body in chunks, a header twice, one that came before the last one was
answered) takes uvicorn's way, and the same application answers it.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from aliquot.live.bodies.large import BodyMemoryError, IncomingBody
from aliquot.live.gateway.http.asgi import SESSION_HEADER, RequestIds
from aliquot.live.gateway.http.deadlines import Deadlines
from aliquot.live.gateway.http.events import wants_events
from aliquot.live.gateway.http.guard import DiscardedTrailers, GuardedProtocol
from aliquot.live.gateway.http.refusal import CLOSE, OVERLOADED, SLOW, Refusal
from aliquot.live.gateway.http.responses import CORS, Body, Headers, pieces_of, size_of
from aliquot.live.gateway.invocation.exchange import Exchange
from aliquot.live.gateway.invocation.invoke import PREFIX, InvokeHandler, is_invocation
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.ids import Ids

_TAIL = b"".join(b"%b: %b\r\n" % pair for pair in CORS) + b"content-length: %d\r\n\r\n"
_JOINED_BYTES = 65_536  # up to here a body is copied behind its head to be one write
_ONCE = frozenset([b"authorization", b"content-length", b"content-type", b"host", b"x-request-id"])
_UNUSUAL = frozenset([SESSION_HEADER, b"accept", b"expect", b"transfer-encoding", b"upgrade"])


class FastCycle:
    """A request on the short way and its answer. Its names are what uvicorn's protocol asks of its own cycles."""

    __slots__ = (
        "arrival",
        "exchange",
        "expected",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "seen",
        "watched",
    )

    def __init__(self, exchange: Exchange, expected: int, bound: int, *, keep_alive: bool) -> None:
        self.exchange = exchange
        self.expected = expected
        self.keep_alive = keep_alive
        self.arrival = IncomingBody(expected, bound)
        self.seen = 0  # of that, when it was last looked at
        self.watched = False
        self.more_body = True
        self.response_complete = False
        self.message_event = _NOTHING

    @property
    def disconnected(self) -> bool:
        return self.exchange.answered

    @disconnected.setter
    def disconnected(self, _: bool) -> None:
        self.exchange.disconnected()


class _NoEvent:
    """Stands for an event that nobody awaits."""

    def set(self) -> None: ...


_NOTHING = _NoEvent()


class GatewayProtocol(GuardedProtocol):
    invoke: ClassVar[InvokeHandler]
    request_ids: ClassVar[RequestIds]
    slow: ClassVar[Deadlines["GatewayProtocol"]]
    stalled: ClassVar[Deadlines["GatewayProtocol"]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **kwargs)
        self._short: FastCycle | None = None  # the request that is being received, when it is on the short way
        # The one that is answered next. `cycle` may be a later one by then: the next request came early.
        self._unanswered: FastCycle | None = None
        self._idle_since = 0.0
        self._sending: FastCycle | None = None  # whose answer goes out in pieces
        self._outgoing: Iterator[bytes | memoryview] = iter(())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()  # one that never sends a request is idle too
        self._look_again_in(self.timeout_keep_alive)

    # --- receiving --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        short = self._short
        if short is not None and short.more_body and not short.watched:
            short.watched = True
            self.invoke.look_at_head(short.exchange)  # who may not call need not be heard out
            self.slow.add(self)

    def on_message_begin(self) -> None:
        self.begin_head()
        self._short = None

    def on_headers_complete(self) -> None:
        self.end_head()
        if self.parser.get_method() == b"POST" and self.url.startswith(PREFIX) and self._take_short_way():
            return
        self.check_unusual()
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)
        super().on_headers_complete()
        self.headers = DiscardedTrailers()

    def _take_short_way(self) -> bool:
        if self.busy or self.flow.write_paused:  # who does not read its answers waits for room on uvicorn's way
            return False
        path, _, query = self.url.partition(b"?")
        if not is_invocation("POST", path) or b"#" in self.url:
            return False
        values: dict[bytes, bytes] = {}
        for name, value in self.headers:
            if name in _ONCE:
                if name in values:
                    return False
                values[name] = value
            elif name in _UNUSUAL and (name != b"accept" or wants_events(value)):
                return False
        length = values.get(b"content-length", b"0")
        version = self.parser.get_http_version()
        if not length.isdigit() or int(length) > self.limits.payload_bytes or version != "1.1" or b"host" not in values:
            return False
        exchange = Exchange(
            path,
            query,
            values.get(b"authorization"),
            values.get(b"content-type"),
            self.request_ids.of(values.get(b"x-request-id")),
            b"",
            self._respond,
        )
        self._short = FastCycle(
            exchange, int(length), self.limits.bodies_bytes, keep_alive=self.parser.should_keep_alive()
        )
        self._unanswered = self._short
        self.cycle = self._short  # type: ignore[assignment]
        return True

    def on_body(self, body: bytes) -> None:
        short = self._short
        if short is None:
            self._body_bytes += len(body)
            super().on_body(body)
        elif not short.response_complete:
            try:
                short.arrival.add(body)
            except BodyMemoryError:
                short.exchange.refuse(Refusal(503, OVERLOADED, CLOSE))

    def on_message_complete(self) -> None:
        short = self._short
        if short is None:
            super().on_message_complete()
            return
        short.more_body = False
        self.slow.discard(self)
        if short.response_complete:
            return
        short.exchange.body = short.arrival.whole()
        self.invoke.handle(short.exchange)

    def too_slow(self) -> None:
        """Called once in a while until the body is whole: it must have come on by so much since."""
        short = self._short
        if short is None or not short.more_body or short.response_complete:
            return
        if short.arrival.size - short.seen >= self.limits.body_least_bytes:
            short.seen = short.arrival.size
            self.slow.add(self)
        else:
            short.exchange.refuse(Refusal(408, SLOW, CLOSE))

    # --- answering --------------------------------------------------------------------------------------

    def _respond(self, status: int, headers: Headers, body: Body) -> None:
        short, self._unanswered = self._unanswered, None
        assert short is not None  # noqa: S101 - it is the one that was taken the short way
        if self.transport.is_closing():
            short.response_complete = True
            return
        if not short.keep_alive and CLOSE[0] not in headers:
            headers = (*headers, *CLOSE)
        head = STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % pair for pair in headers])
        short.keep_alive = CLOSE[0] not in headers
        if not isinstance(body, bytes):
            self.transport.write(head + _TAIL % size_of(body))
            self._sending, self._outgoing = short, pieces_of(body)
            self._send_on()
            return
        if len(body) <= _JOINED_BYTES:
            self.transport.write(head + _TAIL % len(body) + body)
        else:
            self.transport.writelines((head, _TAIL % len(body), body))
        self._end_response(short)

    def _end_response(self, short: FastCycle) -> None:
        short.response_complete = True
        if not short.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _send_on(self) -> None:
        """As much as is taken, in small pieces: what waits for a slow reader is little beside the body itself."""
        while not self.flow.write_paused and not self.transport.is_closing():
            piece = next(self._outgoing, None)
            if piece is None:
                short, self._sending, self._outgoing = self._sending, None, iter(())
                if short is not None:
                    self._end_response(short)
                return
            self.transport.write(piece)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled.add(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled.discard(self)
        if self._sending is not None:
            self._send_on()

    def does_not_read(self) -> None:
        """Nothing was taken for so long: what is kept for it is not kept for ever."""
        self.transport.abort()

    def on_response_complete(self) -> None:
        """As uvicorn does, but without a new timer for every answer: one per connection looks now and then."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        if self._pending_refusal is not None:
            self.send_refusal(self._pending_refusal)
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again_in(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """The timer runs on; it will find that the connection was used."""

    def _look_again_in(self, delay_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(delay_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing() or self.busy or self._in_head:
            return
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._look_again_in(left_s)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.slow.discard(self)
        self._sending, self._outgoing = None, iter(())
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)
        self.stalled.discard(self)


def make_protocol(invoke: InvokeHandler, request_ids: RequestIds, settings: GatewaySettings) -> type[asyncio.Protocol]:
    """The protocol class for one gateway: uvicorn makes an instance of it for every connection."""
    bound = {
        "invoke": invoke,
        "request_ids": request_ids,
        "limits": settings,
        "ids": Ids(),
        "slow_heads": Deadlines(settings.head_s, GatewayProtocol.head_too_slow),
        "stalled": Deadlines(settings.answer_s, GatewayProtocol.does_not_read),
        "slow": Deadlines(settings.body_s, GatewayProtocol.too_slow),
    }
    return type("BoundProtocol", (GatewayProtocol,), bound)
