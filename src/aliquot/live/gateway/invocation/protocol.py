"""uvicorn's HTTP protocol with a fast path for invocations: a plain POST to an action skips ASGI.

The fast path saves a task, an event, a scope, two messages and their checks, which is half the cost of a warm call.
Unusual requests go through ASGI to the same application. Examples are a chunked body, a repeated header, or a request
that arrives before the previous one is answered.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from aliquot.budgets import BudgetError, MappingBudget
from aliquot.live.bodies.large import IncomingBody
from aliquot.live.gateway.http.asgi import SESSION_HEADER, RequestIds
from aliquot.live.gateway.http.connections import SCOPE_KEY, Connection
from aliquot.live.gateway.http.deadlines import Deadlines
from aliquot.live.gateway.http.events import wants_events
from aliquot.live.gateway.http.guard import DiscardedTrailers, GuardedProtocol
from aliquot.live.gateway.http.limits import LIMIT_HEADERS, limit_headers
from aliquot.live.gateway.http.query import InvokeOptions
from aliquot.live.gateway.http.refusal import CLOSE, SLOW, Refusal
from aliquot.live.gateway.http.responses import CORS, Body, Headers, pieces_of, size_of
from aliquot.live.gateway.invocation.exchange import Exchange
from aliquot.live.gateway.invocation.fast_cycle import FastCycle
from aliquot.live.gateway.invocation.heads import (
    MAX_HEAD_BYTES,
    TRACE_LINE_BYTES,
    KnownHead,
    KnownHeads,
    without_trace,
)
from aliquot.live.gateway.invocation.invoke import PREFIX, is_invocation
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.trace_context import TRACEPARENT, TRACESTATE, read_trace, trace_of
from aliquot.live.store.ids import Ids

RESPONSE_TAIL = b"".join(b"%b: %b\r\n" % pair for pair in CORS) + b"content-length: %d\r\n\r\n"
_USUAL_HEADERS = 3  # of a result: its type, the request's id and the activation's id
_USUAL_HEAD = b"%b" + _USUAL_HEADERS * b"%b: %b\r\n"
_JOINED_BYTES = 65_536  # a body up to this size is copied behind its head, for a single write
_ONCE = frozenset([
    b"authorization", b"content-length", b"content-type", b"host", b"x-request-id", TRACEPARENT, TRACESTATE,
    *LIMIT_HEADERS,
])  # fmt: skip
_UNUSUAL = frozenset([SESSION_HEADER, b"accept", b"expect", b"transfer-encoding", b"upgrade"])


class Invocations(Protocol):
    """Handles invocations for the protocol: `InvokeHandler`, or in a gateway process its connection to that."""

    def check_head(self, exchange: Exchange) -> str: ...
    def know(self, exchange: Exchange, size: int, length: int) -> KnownHead | None: ...
    def recall(self, head: KnownHead) -> Any: ...  # noqa: ANN401 - of the caller, for `handle_of`
    def handle(self, exchange: Exchange) -> None: ...
    def handle_of(self, principal: Any, exchange: Exchange, options: InvokeOptions | None = None) -> None: ...  # noqa: ANN401


class OpenConnections(Protocol):
    """Counts connections: `Connections`, or in a gateway process its connection to that."""

    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class GatewayProtocol(GuardedProtocol):
    """The HTTP protocol of one connection."""

    arrived: ClassVar[IncomingBody]  # stands for a body that came with its head
    heads: ClassVar[KnownHeads]
    invoke: ClassVar[Invocations]
    open_connections: ClassVar[OpenConnections]
    payloads: ClassVar[MappingBudget]
    request_ids: ClassVar[RequestIds]
    responses: ClassVar[dict[int, int]]  # of calls, by status; a missing one is 0
    slow: ClassVar[Deadlines["GatewayProtocol"]]
    stalled: ClassVar[Deadlines["GatewayProtocol"]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **kwargs)
        self._fast_cycle: FastCycle | None = None  # the request that is being received, if it is on the fast path
        # The request that is answered next. `cycle` may already be a later one, if the client pipelines requests.
        self._unanswered: FastCycle | None = None
        self._held = b""  # a known head whose body has not arrived
        self._idle_since = 0.0
        self._sending: FastCycle | None = None  # the request whose response goes out in pieces
        self._outgoing: Iterator[bytes | memoryview] = iter(())
        self.payer = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since = self.loop.time()  # a connection without any request is idle, too
        self._check_idle_in(self.timeout_keep_alive)
        self.open_connections.opened(self)

    def evict(self) -> None:
        self.transport.abort()

    # --- receiving --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        held, self._held = self._held, b""
        if held:
            self.slow.discard(self)
            data = held + data
        begins = self._between and not self.busy
        if begins and not self.flow.write_paused and not self.transport.is_closing():
            found = self.heads.find(data)
            if found is not None:
                head, traceparent = found
                size = head.size + TRACE_LINE_BYTES if traceparent else head.size
                if len(data) < size + head.length:
                    if not held and self.invoke.recall(head) is not None:
                        self._held = data
                        self.slow.add(self)
                        return
                elif self._take_known_head(head, data, traceparent):
                    return
        self._parse(data, begins=begins)

    def _parse(self, data: bytes, *, begins: bool) -> None:
        """Let the parser read the data. `begins`: they begin with a head, which is remembered if possible."""
        super().data_received(data)
        cycle = self._fast_cycle
        if cycle is None:
            return
        if cycle.more_body:
            if not cycle.watched:
                cycle.watched = True
                if begins and not cycle.arrival.size and len(data) <= MAX_HEAD_BYTES:
                    cycle.head = data
                self._begin_body(cycle)
                self.slow.add(self)
        elif (begins or cycle.head) and cycle.keep_alive and not cycle.identified:
            whole = cycle.head or data[: len(data) - cycle.expected]
            head_bytes = without_trace(whole)
            if cycle.exchange.trace is not None and len(head_bytes) == len(whole):
                return  # the line of its trace is written in another way, and would be remembered with the head
            head = self.invoke.know(cycle.exchange, len(head_bytes), cycle.expected)
            if head is not None:
                self.heads.remember(head_bytes, head)

    def _parse_held(self) -> None:
        """Let the parser read a known head whose body has not arrived."""
        held, self._held = self._held, b""
        if held:
            self._parse(held, begins=False)

    def shutdown(self) -> None:
        self._parse_held()
        super().shutdown()

    def _take_known_head(self, head: KnownHead, data: bytes, traceparent: bytes) -> bool:
        """Begin the request of a head that was read before, without parsing it. Return False if it must be read."""
        principal = self.invoke.recall(head)
        if principal is None:
            return False
        body, request_id = data[len(data) - head.length :], self.request_ids.of(None)
        trace = read_trace(traceparent) if traceparent else None
        exchange = Exchange(head.path, b"", None, None, request_id, body, self._respond, None, self, head.limits, trace)
        cycle = self._fast_cycle = self._unanswered = FastCycle(exchange, head.length, self.arrived, keep_alive=True)
        self.cycle = cycle  # type: ignore[assignment]
        cycle.more_body = False
        self.invoke.handle_of(principal, exchange, head.options)
        return True

    def _begin_body(self, cycle: FastCycle) -> None:
        """Refuse a request early, before the rest of its body, or reserve memory for all of it."""
        cycle.exchange.began_s = self.loop.time()
        tenant = self.invoke.check_head(cycle.exchange)
        if not cycle.response_complete:
            try:
                cycle.arrival.reserve(tenant, cycle.expected)
            except BudgetError as error:
                cycle.exchange.refuse(Refusal(429, str(error), CLOSE))

    def on_message_begin(self) -> None:
        self.begin_head()
        self._fast_cycle = None

    def on_headers_complete(self) -> None:
        self.end_head()
        if self.parser.get_method() == b"POST" and self.url.startswith(PREFIX) and self._take_fast_path():
            return
        self.check_unusual()
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.scope[SCOPE_KEY] = self  # type: ignore[literal-required] # a key of our own
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)
        super().on_headers_complete()
        self.headers = DiscardedTrailers()

    def _take_fast_path(self) -> bool:
        if self.busy or self.flow.write_paused:  # a client that does not read its responses waits on uvicorn's path
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
            None,
            self,
            limit_headers(values),
            trace_of(values),
        )
        arrival = IncomingBody(int(length), self.payloads)
        cycle = FastCycle(exchange, int(length), arrival, keep_alive=self.parser.should_keep_alive())
        cycle.identified = b"x-request-id" in values or TRACESTATE in values
        self._fast_cycle = self._unanswered = cycle
        self.cycle = cycle  # type: ignore[assignment]
        return True

    def on_body(self, body: bytes) -> None:
        cycle = self._fast_cycle
        if cycle is None:
            self._body_bytes += len(body)
            super().on_body(body)
        elif not cycle.response_complete:
            cycle.arrival.add(body)

    def on_message_complete(self) -> None:
        self._between = True
        cycle = self._fast_cycle
        if cycle is None:
            super().on_message_complete()
            return
        cycle.more_body = False
        self.slow.discard(self)
        if cycle.response_complete:
            return
        cycle.exchange.body = cycle.arrival.whole()
        self.invoke.handle(cycle.exchange)

    def too_slow(self) -> None:
        """Refuse a body that has not grown by `body_least_bytes` since the last check."""
        self._parse_held()
        cycle = self._fast_cycle
        if cycle is None or not cycle.more_body or cycle.response_complete:
            return
        if cycle.arrival.size - cycle.seen >= self.limits.body_least_bytes:
            cycle.seen = cycle.arrival.size
            self.slow.add(self)
        else:
            cycle.exchange.refuse(Refusal(408, SLOW, CLOSE))

    # --- responding -------------------------------------------------------------------------------------

    def _respond(self, status: int, headers: Headers, body: Body) -> None:
        self.responses[status] += 1
        cycle, self._unanswered = self._unanswered, None
        assert cycle is not None  # noqa: S101 - set when the request took the fast path
        if self.transport.is_closing():
            cycle.response_complete = True
            return
        if CLOSE[0] in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers = (*headers, *CLOSE)
        if len(headers) == _USUAL_HEADERS:
            first, second, third = headers
            head = _USUAL_HEAD % (STATUS_LINE[status], *first, *second, *third)
        else:
            head = STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % pair for pair in headers])
        if not isinstance(body, bytes):
            self.transport.write(head + RESPONSE_TAIL % size_of(body))
            self._sending, self._outgoing = cycle, pieces_of(body)
            self._send_more()
            return
        if len(body) <= _JOINED_BYTES:
            self.transport.write(head + RESPONSE_TAIL % len(body) + body)
        else:
            self.transport.writelines((head, RESPONSE_TAIL % len(body), body))
        self._end_response(cycle)

    def _end_response(self, cycle: FastCycle) -> None:
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _send_more(self) -> None:
        """Write pieces of the body until the client is too slow, so that little is buffered for it."""
        while not self.flow.write_paused and not self.transport.is_closing():
            piece = next(self._outgoing, None)
            if piece is None:
                cycle, self._sending, self._outgoing = self._sending, None, iter(())
                if cycle is not None:
                    self._end_response(cycle)
                return
            self.transport.write(piece)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled.add(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled.discard(self)
        if self._sending is not None:
            self._send_more()

    def does_not_read(self) -> None:
        """Close a connection whose client has read nothing for `answer_s`."""
        self.transport.abort()

    def on_response_complete(self) -> None:
        """Do as uvicorn does, but with one keep-alive timer per connection instead of one per response."""
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
            self._check_idle_in(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Do nothing. The timer runs on and finds that the connection was used."""

    def _check_idle_in(self, delay_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(delay_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing() or self.busy or self._in_head or self._held:
            return
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._check_idle_in(left_s)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.closed(self)
        self.slow.discard(self)
        self._sending, self._outgoing = None, iter(())
        if self._fast_cycle is not None and self._fast_cycle.more_body:
            self._fast_cycle.arrival.drop()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)
        self.stalled.discard(self)


def make_protocol(
    invoke: Invocations,
    request_ids: RequestIds,
    settings: GatewaySettings,
    payloads: MappingBudget,
    connections: OpenConnections,
    base: type[GatewayProtocol] = GatewayProtocol,
    responses: dict[int, int] | None = None,
) -> type[asyncio.Protocol]:
    """Return the protocol class for one gateway. uvicorn makes an instance for every connection."""
    bound = {
        "arrived": IncomingBody(0, payloads),
        "heads": KnownHeads(),
        "invoke": invoke,
        "payloads": payloads,
        "open_connections": connections,
        "request_ids": request_ids,
        "responses": defaultdict(int) if responses is None else responses,
        "limits": settings,
        "ids": Ids(),
        "slow_heads": Deadlines(settings.head_s, GatewayProtocol.head_too_slow),
        "stalled": Deadlines(settings.answer_s, GatewayProtocol.does_not_read),
        "slow": Deadlines(settings.body_s, GatewayProtocol.too_slow),
    }
    return type("BoundProtocol", (base,), bound)
