"""The invoke route as a bare ASGI callable, and bodies read with a bound on their size and their time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from aliquot.live.bodies.large import BodyMemoryError, IncomingBody
from aliquot.live.gateway.http.deadlines import Deadlines
from aliquot.live.gateway.http.events import EventStream, wants_events
from aliquot.live.gateway.http.refusal import CLOSE, OVERLOADED, SLOW, Refusal, malformed, too_large
from aliquot.live.gateway.http.responses import CORS, Body, Headers, pieces_of, size_of
from aliquot.live.gateway.invocation.exchange import SESSION, Exchange
from aliquot.live.gateway.invocation.invoke import InvokeHandler
from aliquot.live.gateway.invocation.streams import StreamingExchange
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.ids import Ids

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

STREAMED = 0  # no status of HTTP: the answer is a stream of events
_MAX_REQUEST_ID_LENGTH = 128
_SINGLE = frozenset([b"authorization", b"content-type", b"content-length", SESSION])


class Disconnected(Exception):  # noqa: N818 - it reads as what it says
    """The client went away before its request was whole."""


class BodyReader:
    """Reads them. One timer watches over all that are slow."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._least_bytes = settings.body_least_bytes
        self._bound = settings.bodies_bytes
        self._slow: Deadlines[_BodyRead] = Deadlines(settings.body_s, self._look)

    def close(self) -> None:
        self._slow.close()

    async def read(self, headers: dict[bytes, bytes], receive: Receive, max_bytes: int) -> bytes:
        """The whole body. Raises a `Refusal` when it is too long or too slow, `Disconnected` when it breaks off."""
        return bytes(await self.read_large(headers, receive, max_bytes))

    async def read_large(self, headers: dict[bytes, bytes], receive: Receive, max_bytes: int) -> bytes | memoryview:
        """The same; a large one in its mapping."""
        length = headers.get(b"content-length")
        if length is None:
            if b"transfer-encoding" not in headers:
                return b""
        elif not length.strip(b" \t").isdigit():
            raise malformed("Content-Length is not a number")
        elif (size := int(length)) > max_bytes:
            raise too_large("Request", size, max_bytes)
        reading = _BodyRead()
        self._slow.add(reading)
        try:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                body: bytes = message.get("body", b"")
                if len(body) > max_bytes:
                    raise too_large("Request", len(body), max_bytes)
                return body
            return await reading.rest(message, receive, max_bytes, self._bound)
        except asyncio.CancelledError:
            if not reading.stopped:
                raise
            reading.task.uncancel()
            raise Refusal(408, SLOW, CLOSE) from None
        finally:
            self._slow.discard(reading)

    def _look(self, reading: "_BodyRead") -> None:
        if reading.received - reading.seen >= self._least_bytes:
            reading.seen = reading.received
            self._slow.add(reading)
        else:
            reading.stopped = True
            reading.task.cancel()


class _BodyRead:
    """A request whose body is awaited."""

    __slots__ = ("received", "seen", "stopped", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - bodies are read in tasks
        self.task = task
        self.stopped = False
        self.received = 0
        self.seen = 0  # of that, when it was last looked at

    async def rest(self, message: Message, receive: Receive, max_bytes: int, bound: int) -> bytes | memoryview:
        arrival = IncomingBody(max_bytes, bound)
        while True:
            if message["type"] != "http.request":
                raise Disconnected
            part = message.get("body", b"")
            self.received += len(part)
            if self.received > max_bytes:
                raise too_large("Request", self.received, max_bytes)
            try:
                arrival.add(part)
            except BodyMemoryError as error:
                raise Refusal(503, OVERLOADED, CLOSE) from error
            if not message.get("more_body", False):
                return arrival.whole()
            message = await receive()


class RequestIds:
    """The request's id: the client's own where it is fit to be repeated, else a new one."""

    def __init__(self) -> None:
        self._ids = Ids()

    def of(self, header: bytes | None) -> str:
        if header is None:
            return self._ids()
        if not header.isascii() or not 0 < len(header) <= _MAX_REQUEST_ID_LENGTH or header.startswith(b"sid_"):
            return self._ids()
        text = header.decode()
        return text if text.isprintable() else self._ids()


def check_headers(pairs: Iterable[tuple[bytes, bytes]], headers: dict[bytes, bytes]) -> None:
    """A credential, type or length that is given twice with different values is nobody's."""
    for name, value in pairs:
        if headers[name] != value and name in _SINGLE:
            raise Refusal(400, f"The header {name.decode()} was given more than once.")


class InvokeRoute:
    """An ASGI application that calls `InvokeHandler.handle`."""

    def __init__(
        self, invoke: InvokeHandler, bodies: BodyReader, transactions: RequestIds, settings: GatewaySettings
    ) -> None:
        self._invoke = invoke
        self._bodies = bodies
        self._transactions = transactions
        self._max_bytes = settings.payload_bytes
        self._keep_alive_s = settings.stream_keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs = scope["headers"]
        headers = dict(pairs)
        transaction = self._transactions.of(headers.get(b"x-request-id"))
        answer: asyncio.Future[tuple[int, Headers, Body]] = asyncio.get_running_loop().create_future()

        def respond(status: int, headers: Headers, body: Body) -> None:
            if not answer.done():
                answer.set_result((status, headers, body))

        request = (
            scope["raw_path"],
            scope["query_string"],
            headers.get(b"authorization"),
            headers.get(b"content-type"),
            transaction,
            b"",
            respond,
        )
        events = None
        if wants_events(headers.get(b"accept")) and scope.get("http_version") != "1.0":
            events = EventStream(self._keep_alive_s, transaction)
            exchange: Exchange = StreamingExchange(*request, lambda headers: respond(STREAMED, headers, b""), events)
        else:
            exchange = Exchange(*request)
        exchange.session = headers.get(SESSION)
        try:
            if len(headers) != len(pairs):
                check_headers(pairs, headers)
            self._invoke.look_at_head(exchange)
            if not exchange.answered:
                exchange.body = await self._bodies.read_large(headers, receive, self._max_bytes)
                self._invoke.handle(exchange)
        except Refusal as refusal:
            exchange.refuse(refusal)
        except Disconnected:
            return
        try:
            status, varying, body = await answer
        except asyncio.CancelledError:
            exchange.disconnected()
            raise
        if status == STREAMED and events is not None:
            await events.send(receive, send, varying)
        else:
            await send_response(send, status, varying, body)


async def send_response(send: Send, status: int, headers: Headers, body: Body) -> None:
    length = (b"content-length", b"%d" % size_of(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length, *CORS]})
    if not isinstance(body, bytes):
        for piece in pieces_of(body):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})
