"""ASGI basics for all routes: types, request ids, header checks, body reading with limits, sending a response."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from aliquot.budgets import BudgetError, MappingBudget
from aliquot.live.bodies.large import LARGE_BODY_BYTES, IncomingBody
from aliquot.live.gateway.http.deadlines import Deadlines
from aliquot.live.gateway.http.refusal import CLOSE, SLOW, Refusal, malformed, too_large
from aliquot.live.gateway.http.responses import CORS, Body, Headers, pieces_of, size_of
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.ids import Ids

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SESSION_HEADER = b"x-aliquot-session"
_MAX_REQUEST_ID_LENGTH = 128
_SINGLE = frozenset([b"authorization", b"content-type", b"content-length", SESSION_HEADER])
_SEPARATORS = {"cookie": "; "}
# These headers describe the transport of a message, not the message.
_TRANSPORT_HEADERS = frozenset([b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"expect"])


class Disconnected(Exception):  # noqa: N818 - an event, not an error
    """The client disconnected before its request was complete."""


class BodyReader:
    """Reads request bodies with limits on size, speed and total memory. One timer watches all slow bodies."""

    def __init__(self, settings: GatewaySettings, payloads: MappingBudget) -> None:
        self._min_progress_bytes = settings.body_least_bytes
        self._payloads = payloads
        self._slow: Deadlines[_BodyRead] = Deadlines(settings.body_s, self._check_progress)

    def close(self) -> None:
        """Stop the timer."""
        self._slow.close()

    async def read(self, headers: dict[bytes, bytes], receive: Receive, max_bytes: int, tenant: str) -> bytes:
        """Return the whole body. It is counted in the tenant's memory while it arrives.

        Raises a `Refusal` if it is too large or too slow, and `Disconnected` if the client goes away.
        """
        return bytes(await self.read_large(headers, receive, max_bytes, tenant))

    async def read_large(
        self, headers: dict[bytes, bytes], receive: Receive, max_bytes: int, tenant: str
    ) -> bytes | memoryview:
        """Return the whole body like `read`, but leave a large one in its memory mapping."""
        length = headers.get(b"content-length")
        if length is None:
            if b"transfer-encoding" not in headers:
                return b""
        elif not length.strip(b" \t").isdigit():
            raise malformed("Content-Length is not a number")
        elif int(length) > max_bytes:
            raise too_large("Request", int(length), max_bytes)
        reading = _BodyRead()
        self._slow.add(reading)
        try:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                body: bytes = message.get("body", b"")
                if len(body) > max_bytes:
                    raise too_large("Request", len(body), max_bytes)
                return body
            expected = max_bytes if length is None else int(length)
            arrival = IncomingBody(expected, self._payloads)
            arrival.reserve(tenant, min(expected, LARGE_BODY_BYTES) if length is None else expected)
            return await reading.rest(message, receive, max_bytes, arrival)
        except BudgetError as error:
            raise Refusal(429, str(error), CLOSE) from error
        except asyncio.CancelledError:
            if not reading.stopped:
                raise
            reading.task.uncancel()
            raise Refusal(408, SLOW, CLOSE) from None
        finally:
            self._slow.discard(reading)

    def _check_progress(self, reading: "_BodyRead") -> None:
        if reading.received - reading.seen >= self._min_progress_bytes:
            reading.seen = reading.received
            self._slow.add(reading)
        else:
            reading.stopped = True
            reading.task.cancel()


class _BodyRead:
    """A body that is being received by the current task."""

    __slots__ = ("received", "seen", "stopped", "task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - bodies are read in tasks
        self.task = task
        self.stopped = False
        self.received = 0  # bytes
        self.seen = 0  # bytes received when progress was last checked

    async def rest(
        self, message: Message, receive: Receive, max_bytes: int, arrival: IncomingBody
    ) -> bytes | memoryview:
        while True:
            if message["type"] != "http.request":
                raise Disconnected
            part = message.get("body", b"")
            self.received += len(part)
            if self.received > max_bytes:
                raise too_large("Request", self.received, max_bytes)
            arrival.add(part)
            if not message.get("more_body", False):
                return arrival.whole()
            message = await receive()


class RequestIds:
    """Chooses each request's id: the client's own if it is valid, otherwise a new one."""

    def __init__(self) -> None:
        self._ids = Ids()

    def of(self, header: bytes | None) -> str:
        """Return the id for a request with this `X-Request-ID` header."""
        if header is None:
            return self._ids()
        if not header.isascii() or not 0 < len(header) <= _MAX_REQUEST_ID_LENGTH or header.startswith(b"sid_"):
            return self._ids()
        text = header.decode()
        return text if text.isprintable() else self._ids()


def check_headers(pairs: Iterable[tuple[bytes, bytes]], headers: dict[bytes, bytes]) -> None:
    """Raise a 400 if credentials, type, length or session are given twice with different values."""
    for name, value in pairs:
        if headers[name] != value and name in _SINGLE:
            raise Refusal(400, f"The header {name.decode()} was given more than once.")


def headers_of(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as text for a function. Values of a repeated header are joined."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in _TRANSPORT_HEADERS:
            continue
        key, text = name.decode("latin-1"), _text_of(value)
        found[key] = f"{found[key]}{_SEPARATORS.get(key, ', ')}{text}" if key in found else text
    return found


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def send_response(send: Send, status: int, headers: Headers, body: Body) -> None:
    """Send a whole response with CORS headers. A large body goes out in pieces."""
    length = (b"content-length", b"%d" % size_of(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length, *CORS]})
    if not isinstance(body, bytes):
        for piece in pieces_of(body):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})
