"""Clients of a gateway process, as the scheduler's process knows them: their connections, and their other requests."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import structlog

from aliquot.live.gateway.http.asgi import Message, Receive, Scope, Send
from aliquot.live.gateway.http.connections import SCOPE_KEY
from aliquot.live.gateway.http.refusal import CLOSE
from aliquot.live.gateway.http.responses import Body, Headers, pieces_of, size_of
from aliquot.live.gateway.invocation.exchange import Exchange
from aliquot.live.gateway.processes.frames import (
    ANSWER,
    ANSWER_HEAD,
    BEGIN,
    END,
    EVICT,
    PART,
    PIECE,
    RECEIVED_DISCONNECT,
    RECEIVED_MORE,
    WANT,
    RequestScope,
    ResponseBegin,
)

MAX_WHOLE_BYTES = 2**18  # a larger body is sent in pieces, each when the client has read the one before

SendFrame = Callable[[int, int, bytes], None]  # kind, number, payload
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = structlog.get_logger("aliquot.gateway")
_encode = msgspec.msgpack.encode
_DISCONNECT: Message = {"type": "http.disconnect"}


class ForwardedConnection:
    """A client's connection to a gateway process. It has at most one call at a time."""

    __slots__ = ("_number", "_pieces", "_responses", "_send", "exchange", "payer")

    def __init__(self, number: int, send: SendFrame, responses: dict[int, int]) -> None:
        """`responses` counts the answers to calls by status. A missing one is 0."""
        self._number = number
        self._responses = responses
        self._send = send
        self._pieces: Iterator[bytes | memoryview] = iter(())
        self.exchange: Exchange | None = None  # the last call
        self.payer = ""

    def evict(self) -> None:
        """Have the gateway process close the connection at once."""
        self._send(EVICT, self._number, b"")

    def closed(self) -> None:
        """Drop the response, because the client has disconnected."""
        self._pieces = iter(())
        if self.exchange is not None:
            self.exchange.disconnected()

    def respond(self, status: int, headers: Headers, body: Body) -> None:
        """Answer the call."""
        self._responses[status] += 1
        lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        if isinstance(body, bytes) and len(body) <= MAX_WHOLE_BYTES:
            head = ANSWER_HEAD.pack(status, CLOSE[0] in headers, len(lines), len(body))
            self._send(ANSWER, self._number, head + lines + body)
            return
        head = ANSWER_HEAD.pack(status, CLOSE[0] in headers, len(lines), size_of(body))
        self._pieces = pieces_of(body)
        self._send(ANSWER, self._number, head + lines)

    def send_piece(self) -> None:
        """Send the next piece of a large body."""
        piece = next(self._pieces, None)
        if piece is not None:
            self._send(PIECE, self._number, bytes(piece))


class ForwardedRequest:
    """A request that a gateway process passes on, with the ASGI interface."""

    def __init__(self, number: int, send: SendFrame) -> None:
        self._number = number
        self._send = send
        self._received: deque[Message] = deque()
        self._asked = False  # for the next part of the request
        self._parts = 0  # parts of the response that the gateway process has not sent
        self._changed = asyncio.Event()
        self._lost = False

    async def run(self, application: Application, scope: RequestScope, connection: ForwardedConnection | None) -> None:
        """Have the application respond."""
        try:
            await application(_asgi_scope(scope, connection), self._receive, self._respond)
        except Exception:  # noqa: BLE001 - uvicorn then responds with a 500
            _log.exception("request failed")
        finally:
            self._send(END, self._number, b"")

    def received(self, payload: bytes) -> None:
        """Take a part of the request."""
        kind = payload[:1]
        self._asked = False
        if kind == RECEIVED_DISCONNECT:
            self._received.append(_DISCONNECT)
        else:
            part = {"type": "http.request", "body": payload[1:], "more_body": kind == RECEIVED_MORE}
            self._received.append(part)
        self._changed.set()

    def part_sent(self) -> None:
        """Let the next part of the response be sent."""
        self._parts -= 1
        self._changed.set()

    def lose(self) -> None:
        """End a request whose gateway process has ended. The client is disconnected."""
        self._lost = True
        self._changed.set()

    async def _receive(self) -> Message:
        while not self._received:
            if self._lost:
                return _DISCONNECT
            if not self._asked:
                self._asked = True
                self._send(WANT, self._number, b"")
            await self._wait()
        return self._received.popleft()

    async def _respond(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            begin = ResponseBegin(message["status"], list(message.get("headers", ())))
            self._send(BEGIN, self._number, _encode(begin))
            return
        more = message.get("more_body", False)
        body = memoryview(message.get("body", b""))
        for begin_at in range(0, max(1, len(body)), MAX_WHOLE_BYTES):
            end_at = begin_at + MAX_WHOLE_BYTES
            follows = more or end_at < len(body)
            self._parts += 1
            self._send(PART, self._number, (b"\1" if follows else b"\0") + body[begin_at:end_at])
            while follows and self._parts and not self._lost:
                await self._wait()

    async def _wait(self) -> None:
        """Wait until something has changed. Two tasks may wait: one that reads, and one that writes."""
        self._changed.clear()
        await self._changed.wait()


def _asgi_scope(scope: RequestScope, connection: ForwardedConnection | None) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": scope.http_version,
        "method": scope.method,
        "scheme": scope.scheme,
        "path": scope.path.decode("latin-1"),
        "raw_path": scope.path,
        "query_string": scope.query,
        "root_path": "",
        "headers": scope.headers,
        SCOPE_KEY: connection,
    }
