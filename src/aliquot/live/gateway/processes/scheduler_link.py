"""A gateway process's end of the connection to the scheduler's process: it passes calls and requests on."""

import asyncio
from collections.abc import Callable

import msgspec

from aliquot.live.gateway.http.asgi import Message, Receive, Scope, Send
from aliquot.live.gateway.http.connections import SCOPE_KEY, Connection
from aliquot.live.gateway.http.query import InvokeOptions
from aliquot.live.gateway.invocation.exchange import Exchange
from aliquot.live.gateway.invocation.heads import KnownHead
from aliquot.live.gateway.processes.forwarding_protocol import ForwardingProtocol
from aliquot.live.gateway.processes.frames import (
    ANSWER,
    BEGIN,
    CALL,
    CANCEL,
    CLOSED,
    CONNECTED,
    CONNECTION_NUMBER,
    END,
    EVICT,
    FORCED,
    HEAD_NUMBER,
    NEW_CALL,
    NEXT_PIECE,
    OPEN,
    PART,
    PIECE,
    PING,
    PONG,
    READ_AGAIN,
    RECEIVED,
    RECEIVED_DISCONNECT,
    RECEIVED_LAST,
    RECEIVED_MORE,
    REMEMBER,
    REMEMBERED,
    SENT,
    START,
    STOP,
    TRACED_CALL,
    WANT,
    CallHead,
    FrameConnection,
    FrameHandler,
    GatewayStart,
    RequestScope,
    ResponseBegin,
)

_encode = msgspec.msgpack.encode
_read_begin = msgspec.msgpack.Decoder(ResponseBegin).decode
_OPTIONS = InvokeOptions(blocking=True, result=True, timeout_s=None)  # the scheduler's process knows the head's own


class SchedulerLink(FrameConnection):
    """Passes calls on as frames. It has the methods of `Invocations` and of `OpenConnections`."""

    def __init__(self) -> None:
        super().__init__({
            START: lambda _, payload: self._started(payload),
            PING: lambda *_: self.send(PONG),
            STOP: lambda number, _: self._stop(forced=number == FORCED),
            EVICT: self._for_connection(ForwardingProtocol.evict_forwarded),
            READ_AGAIN: self._for_connection(ForwardingProtocol.read_again),
            REMEMBERED: self._remembered,
            ANSWER: self._for_connection(ForwardingProtocol.answer),
            PIECE: self._for_connection(ForwardingProtocol.piece),
            WANT: self._for_request(_PassedRequest.want),
            BEGIN: self._for_request(_PassedRequest.begin),
            PART: self._for_request(_PassedRequest.part),
            END: self._for_request(_PassedRequest.end),
        })  # fmt: skip
        self.start: asyncio.Future[GatewayStart] = asyncio.get_running_loop().create_future()
        self._on_stop: Callable[[bool], None] = lambda _: None
        self._numbers = 0
        self._connections: dict[int, ForwardingProtocol] = {}
        self._requests: dict[int, _PassedRequest] = {}
        self._unconfirmed: dict[int, KnownHead] = {}

    def on_stop(self, stop: Callable[[bool], None]) -> None:
        """Call this function when the gateway is to stop, with whether it must not wait for responses."""
        self._on_stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.start.cancel()

    def _started(self, payload: bytes) -> None:
        self.start.set_result(msgspec.msgpack.decode(payload, type=GatewayStart))

    def _stop(self, *, forced: bool) -> None:
        self._on_stop(forced)

    def next_number(self) -> int:
        """Return a number for a connection, a request or a head."""
        self._numbers += 1
        return self._numbers

    # --- connections ------------------------------------------------------------------------------------

    @property
    def open_connections(self) -> int:
        """The number of clients' connections."""
        return len(self._connections)

    def _for_connection(self, handle: Callable[[ForwardingProtocol, bytes], None]) -> FrameHandler:
        """Return a handler of frames for a connection. A connection that is closed gets none."""

        def handler(number: int, payload: bytes) -> None:
            if (connection := self._connections.get(number)) is not None:
                handle(connection, payload)

        return handler

    def opened(self, connection: Connection) -> None:
        assert isinstance(connection, ForwardingProtocol)  # noqa: S101 - the only ones here
        self._connections[connection.number] = connection
        self.send(CONNECTED, connection.number)

    def closed(self, connection: Connection) -> None:
        assert isinstance(connection, ForwardingProtocol)  # noqa: S101 - the only ones here
        del self._connections[connection.number]
        self.send(CLOSED, connection.number)

    # --- calls ------------------------------------------------------------------------------------------

    def check_head(self, exchange: Exchange) -> str:
        """Leave the check to the scheduler's process. The body is small, and no namespace is charged for it yet."""
        return ""

    def recall(self, head: KnownHead) -> bytes | None:
        """Return the number of a head that calls may name."""
        return head.caller or None

    def know(self, exchange: Exchange, size: int, length: int) -> KnownHead | None:
        """Have the scheduler's process remember a head. Calls may name it when that has confirmed it."""
        connection = exchange.connection
        assert isinstance(connection, ForwardingProtocol)  # noqa: S101 - the only ones here
        number = self.next_number() & 0xFFFFFFFF
        head = self._unconfirmed[number] = KnownHead(exchange.path, _OPTIONS, b"", size, length, exchange.limits)
        self.send(REMEMBER, number, CONNECTION_NUMBER.pack(connection.number))
        return head

    def _remembered(self, number: int, payload: bytes) -> None:
        head = self._unconfirmed.pop(number)
        if payload == b"\1":
            head.caller = HEAD_NUMBER.pack(number)

    def handle_of(self, principal: bytes, exchange: Exchange, options: InvokeOptions | None = None) -> None:
        """Pass on a call whose head is known."""
        connection = exchange.connection
        assert isinstance(connection, ForwardingProtocol)  # noqa: S101 - the only ones here
        if exchange.trace is None:
            self.send(CALL, connection.number, principal + exchange.body)
        else:
            traceparent = exchange.trace.header.encode()
            self.send(TRACED_CALL, connection.number, principal + traceparent + exchange.body)

    def handle(self, exchange: Exchange) -> None:
        """Pass on a call with its head."""
        connection = exchange.connection
        assert isinstance(connection, ForwardingProtocol)  # noqa: S101 - the only ones here
        head = _encode(
            CallHead(
                exchange.path,
                exchange.query,
                exchange.authorization,
                exchange.content_type,
                exchange.transaction,
                exchange.limits,
                exchange.trace,
            )
        )
        self.send(NEW_CALL, connection.number, HEAD_NUMBER.pack(len(head)) + head + exchange.body)

    def ask_for_piece(self, number: int) -> None:
        """Ask for the next piece of a large response."""
        self.send(NEXT_PIECE, number)

    # --- other requests ---------------------------------------------------------------------------------

    def _for_request(self, handle: Callable[["_PassedRequest", bytes], None]) -> FrameHandler:
        """Return a handler of frames for a request, unless that has ended."""

        def handler(number: int, payload: bytes) -> None:
            if (request := self._requests.get(number)) is not None:
                handle(request, payload)

        return handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request as it is. This is the ASGI application of a gateway process."""
        number = self.next_number()
        request = self._requests[number] = _PassedRequest(number, receive, self)
        try:
            await request.run(scope, send)
        finally:
            del self._requests[number]


class _PassedRequest:
    """A request that the scheduler's process answers."""

    def __init__(self, number: int, receive: Receive, link: FrameConnection) -> None:
        self._number = number
        self._receive = receive
        self._link = link
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()  # at most two wait here
        self._receiving: asyncio.Task[None] | None = None

    async def run(self, scope: Scope, send: Send) -> None:
        connection = scope[SCOPE_KEY].number
        path, query, scheme = scope["raw_path"], scope["query_string"], scope["scheme"]
        passed = RequestScope(
            connection, scope["method"], path, query, scheme, scope["http_version"], list(scope["headers"])
        )
        self._link.send(OPEN, self._number, _encode(passed))
        try:
            await self._pass_response(send)
        except asyncio.CancelledError:  # the server stops, and the application may have a last word to the client
            self._link.send(CANCEL, self._number)
            if self._link.lost.is_set():
                raise
            await self._pass_response(send)
        except BaseException:
            self._link.send(CANCEL, self._number)
            raise
        finally:
            if self._receiving is not None:
                self._receiving.cancel()

    async def _pass_response(self, send: Send) -> None:
        while (message := await self._messages.get()) is not None:
            await send(message)
            if message.get("more_body"):
                self._link.send(SENT, self._number)

    def want(self, _: bytes) -> None:
        """Read the next part of the request."""
        self._receiving = asyncio.get_running_loop().create_task(self._pass_part())

    async def _pass_part(self) -> None:
        message = await self._receive()
        if message["type"] != "http.request":
            self._link.send(RECEIVED, self._number, RECEIVED_DISCONNECT)
            return
        kind = RECEIVED_MORE if message.get("more_body") else RECEIVED_LAST
        self._link.send(RECEIVED, self._number, kind + message.get("body", b""))

    def begin(self, payload: bytes) -> None:
        """Begin the response."""
        begin = _read_begin(payload)
        self._messages.put_nowait({
            "type": "http.response.start", "status": begin.status, "headers": begin.headers,
        })  # fmt: skip

    def part(self, payload: bytes) -> None:
        """Send a part of the response."""
        more = payload[:1] == b"\1"
        self._messages.put_nowait({"type": "http.response.body", "body": payload[1:], "more_body": more})

    def end(self, _: bytes) -> None:
        """End the request when all of the response is sent."""
        self._messages.put_nowait(None)
