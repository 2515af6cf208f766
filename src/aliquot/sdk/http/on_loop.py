"""Connections of an event loop. A request waits for one that is free or for a new one, whichever comes first."""

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from typing import cast

from aliquot.sdk.http.exchange import (
    CONNECT_TIMEOUT_S,
    KEEP_ALIVE_S,
    MAX_CONNECTING,
    MAX_CONNECTIONS,
    READ_BYTES,
    HttpBody,
    HttpTarget,
    LostConnectionError,
    NoAnswerError,
    NoConnectionError,
    ReplyReader,
    check_tunnel,
    encode_head,
)
from aliquot.sdk.wire import BodyPieces, HttpReply, HttpRequest


class LoopConnection(asyncio.Protocol):
    """An open connection, used by one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader: ReplyReader | None = None
        self._answer: asyncio.Future[HttpReply] | None = None
        self._may_write: asyncio.Future[None] | None = None
        self._last_use = 0.0
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._last_use = self._loop.time()

    def data_received(self, data: bytes) -> None:
        if self._reader is None:  # nothing was asked for
            self.close()
            return
        try:
            self._reader.feed(data)
        except LostConnectionError as error:
            self._fail(error)
            return
        if self._reader.complete:
            self._succeed(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._reader is None:
            return
        try:
            self._reader.end(str(exc) if exc else "")
        except LostConnectionError as error:
            self._fail(error)
        else:
            self._succeed(self._reader)

    def pause_writing(self) -> None:
        self._may_write = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._may_write is not None and not self._may_write.done():
            self._may_write.set_result(None)
        self._may_write = None

    def is_usable(self) -> bool:
        return self.is_open and self._loop.time() - self._last_use <= KEEP_ALIVE_S

    async def exchange(self, head: bytes, body: HttpBody, timeout_s: float) -> HttpReply:
        """Send a request and return its reply. The connection is closed if this is cancelled."""
        answer: asyncio.Future[HttpReply] = self._loop.create_future()
        self._answer = answer
        self._reader = ReplyReader(head)
        guard = self._loop.call_later(timeout_s, self._fail, NoAnswerError(f"no answer within {timeout_s:g} s"))
        try:
            await self._write(head, body, answer)
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            guard.cancel()
            self._reader = self._answer = None
            self._last_use = self._loop.time()

    async def _write(self, head: bytes, body: HttpBody, answer: asyncio.Future[HttpReply]) -> None:
        transport = cast("asyncio.Transport", self._transport)
        if isinstance(body, bytes) and len(body) <= READ_BYTES:
            transport.write(head + body)
            return
        transport.write(head)
        for piece in body if isinstance(body, BodyPieces) else (body,):
            if self._may_write is not None:  # an early answer ends the wait as well
                await asyncio.wait((self._may_write, answer), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():  # the server would take the next request for the rest of this body
                self.close()
                return
            transport.write(piece)

    def _succeed(self, reader: ReplyReader) -> None:
        if not reader.keeps_open:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(reader.reply())

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class TunnelOpening(asyncio.Protocol):
    """Collects the answer of a proxy to the request for a tunnel."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._head.endswith(b"\r\n\r\n"):
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self._head)


class LoopConnections:
    """The connections of one event loop to one server."""

    def __init__(self, target: HttpTarget) -> None:
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._idle: list[LoopConnection] = []  # the last one used is last
        self._waiting: deque[asyncio.Future[LoopConnection]] = deque()
        self._connecting: set[asyncio.Task[None]] = set()
        self._open = 0

    async def send(self, request: HttpRequest, authorization: str) -> HttpReply:
        """Send a request and return its reply."""
        head = encode_head(self._target, request, authorization)
        connection = self._take_idle() or await self._await_one()
        try:
            return await connection.exchange(head, cast("HttpBody", request.body), request.timeout_s)
        finally:
            self._put_back(connection)

    def _take_idle(self) -> LoopConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            self._open -= 1
            connection.close()
        return None

    async def _await_one(self) -> LoopConnection:
        place: asyncio.Future[LoopConnection] = self._loop.create_future()
        self._waiting.append(place)
        self._connect()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._put_back(place.result())
            raise

    def _put_back(self, connection: LoopConnection) -> None:
        """Give a connection to the next request, or keep it."""
        if not connection.is_open:
            self._open -= 1
            self._connect()  # there is room for another one now
            return
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(connection)
                return
        self._idle.append(connection)

    def _connect(self) -> None:
        """Begin to make a connection, if a request waits for one and there may be more."""
        wanted = min(len(self._waiting), MAX_CONNECTING)
        room = MAX_CONNECTIONS - self._open - len(self._connecting)
        if len(self._connecting) < wanted and room > 0:
            task = self._loop.create_task(self._make())
            self._connecting.add(task)
            task.add_done_callback(self._made)

    def _made(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        self._connect()

    async def _make(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._connected()
        except (OSError, TimeoutError) as error:
            self._refuse(str(error) or f"no connection within {CONNECT_TIMEOUT_S:g} s")
        else:
            self._open += 1
            self._put_back(connection)

    async def _connected(self) -> LoopConnection:
        target, connection = self._target, LoopConnection(self._loop)
        if not target.tunnel:
            await self._loop.create_connection(lambda: connection, *target.peer, ssl=target.tls)
            return connection
        plain, tunnel = await self._loop.create_connection(lambda: TunnelOpening(self._loop), *target.peer)
        plain.write(target.tunnel)
        try:
            check_tunnel(await tunnel.answer)
            tls = cast("ssl.SSLContext", target.tls)
            transport = await self._loop.start_tls(plain, connection, tls, server_hostname=target.host)
        except BaseException:
            plain.abort()
            raise
        connection.connection_made(cast("asyncio.Transport", transport))
        return connection

    def _refuse(self, text: str) -> None:
        """Fail all that wait for a connection, because the server cannot be reached."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(NoConnectionError(text))

    async def close(self) -> None:
        for task in self._connecting:
            task.cancel()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # lets the transports end
