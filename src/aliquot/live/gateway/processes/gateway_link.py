"""The scheduler's end of the connection to one gateway process."""

import asyncio
from functools import partial

import msgspec

from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.invocation.exchange import Exchange
from aliquot.live.gateway.invocation.heads import MAX_HEADS, KnownHead
from aliquot.live.gateway.processes.clients import ForwardedConnection, ForwardedRequest
from aliquot.live.gateway.processes.frames import (
    CALL,
    CANCEL,
    CLOSED,
    CONNECTED,
    CONNECTION_NUMBER,
    HEAD_NUMBER,
    NEW_CALL,
    NEXT_PIECE,
    OPEN,
    PING,
    PONG,
    READ_AGAIN,
    READY,
    RECEIVED,
    REMEMBER,
    REMEMBERED,
    SENT,
    START,
    STOP,
    STOPPED,
    TRACED_CALL,
    CallHead,
    FrameConnection,
    GatewayStart,
    RequestScope,
)
from aliquot.live.invocations.trace_context import TRACEPARENT_BYTES, TraceContext, read_trace

_read_head = msgspec.msgpack.Decoder(CallHead).decode
_read_scope = msgspec.msgpack.Decoder(RequestScope).decode
_NUMBER_BYTES = HEAD_NUMBER.size


class GatewayLink(FrameConnection):
    """Handles the calls and requests of one gateway process. Keys and limits are checked here, for each of them."""

    def __init__(self, app: Gateway, start: GatewayStart) -> None:
        super().__init__({
            READY: lambda *_: self.ready.set(),
            PONG: lambda *_: self._pong(),
            STOPPED: lambda *_: self.stopped.set(),
            CONNECTED: lambda number, _: self._connected(number),
            CLOSED: lambda number, _: self._closed(number),
            CALL: self._call,
            TRACED_CALL: self._traced_call,
            NEW_CALL: self._new_call,
            REMEMBER: self._remember,
            NEXT_PIECE: lambda number, _: self._next_piece(number),
            OPEN: self._open,
            RECEIVED: self._received,
            SENT: lambda number, _: self._sent(number),
            CANCEL: lambda number, _: self._cancel(number),
        })  # fmt: skip
        self._app = app
        self._invoke = app.invoke
        self._start = start
        self._connections: dict[int, ForwardedConnection] = {}
        self._requests: dict[int, tuple[ForwardedRequest, asyncio.Task[None]]] = {}
        self._heads: dict[bytes, KnownHead] = {}
        self.ready = asyncio.Event()
        self.stopped = asyncio.Event()
        self.unanswered_pings = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.send(START, 0, msgspec.msgpack.encode(self._start))

    def connection_lost(self, exc: Exception | None) -> None:
        """Disconnect the clients of a process that has ended. Their calls go on."""
        super().connection_lost(exc)
        for number in list(self._connections):
            self._closed(number)
        for request, _ in self._requests.values():
            request.lose()
        self.stopped.set()

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.unanswered_pings += 1
        self.send(PING)

    def stop(self, number: int = 0) -> None:
        """Have the process accept no more connections, and close those that wait for nothing."""
        self.send(STOP, number)

    def _pong(self) -> None:
        self.unanswered_pings = 0

    # --- connections and calls --------------------------------------------------------------------------

    def _connected(self, number: int) -> None:
        connection = self._connections[number] = ForwardedConnection(number, self.send, self._app.responses.calls)
        self._app.connections.opened(connection)

    def _closed(self, number: int) -> None:
        connection = self._connections.pop(number)
        self._app.connections.closed(connection)
        connection.closed()

    def _traced_call(self, number: int, payload: bytes) -> None:
        """Begin a call whose head is known, but for the trace that it is part of."""
        end = _NUMBER_BYTES + TRACEPARENT_BYTES
        self._call(number, payload[:_NUMBER_BYTES] + payload[end:], read_trace(payload[_NUMBER_BYTES:end]))

    def _call(self, number: int, payload: bytes, trace: TraceContext | None = None) -> None:
        """Begin a call whose head is known. The caller, the action and the limits are looked up."""
        head = self._heads.get(payload[:_NUMBER_BYTES])
        principal = None if head is None else self._invoke.recall(head)
        if head is None or principal is None:
            self.send(READ_AGAIN, number)
            return
        connection = self._connections[number]
        request_id, body = self._app.request_ids.of(None), payload[_NUMBER_BYTES:]
        exchange = connection.exchange = Exchange(
            head.path, b"", None, None, request_id, body, connection.respond, None, connection, head.limits, trace
        )
        self._invoke.handle_of(principal, exchange, head.options)

    def _new_call(self, number: int, payload: bytes) -> None:
        connection = self._connections[number]
        end = _NUMBER_BYTES + HEAD_NUMBER.unpack_from(payload)[0]
        head = _read_head(payload[_NUMBER_BYTES:end])
        exchange = connection.exchange = Exchange(
            *(head.path, head.query, head.authorization, head.content_type, head.transaction, payload[end:]),
            respond=connection.respond,
            connection=connection,
            limits=head.limits,
            trace=head.trace,
        )
        self._invoke.handle(exchange)

    def _remember(self, number: int, payload: bytes) -> None:
        """Remember the head of a connection's last call, if it is one to remember."""
        connection = self._connections.get(CONNECTION_NUMBER.unpack(payload)[0])
        exchange = None if connection is None else connection.exchange
        head = None if exchange is None else self._invoke.know(exchange, 0, 0)
        if head is not None:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[HEAD_NUMBER.pack(number)] = head
        self.send(REMEMBERED, number, b"\0" if head is None else b"\1")

    def _next_piece(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is not None:
            connection.send_piece()

    # --- other requests ---------------------------------------------------------------------------------

    def _open(self, number: int, payload: bytes) -> None:
        scope = _read_scope(payload)
        request = ForwardedRequest(number, self.send)
        running = request.run(self._app, scope, self._connections.get(scope.connection))
        task = asyncio.get_running_loop().create_task(running)
        self._requests[number] = request, task
        task.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, _: asyncio.Task[None]) -> None:
        del self._requests[number]

    def _received(self, number: int, payload: bytes) -> None:
        if (found := self._requests.get(number)) is not None:
            found[0].received(payload)

    def _sent(self, number: int) -> None:
        if (found := self._requests.get(number)) is not None:
            found[0].part_sent()

    def _cancel(self, number: int) -> None:
        if (found := self._requests.get(number)) is not None:
            found[1].cancel()
