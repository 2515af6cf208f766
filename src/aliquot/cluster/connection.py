"""A connection between head and agent: whole messages over TLS or plain TCP."""

import asyncio
from collections import deque
from typing import Any, Protocol, cast

from aliquot.cluster.frames import MAX_MESSAGE_BYTES, FrameError, FrameReader, frame_message

GREETING_TIMEOUT_S = 10.0  # for TLS, and for each message until both sides know each other
CLOSED = "the connection was closed"


class MessageError(ValueError):
    """The peer has sent a message that it may not send now."""


class MessageHandler(Protocol):
    """Handles what a connection receives."""

    def received(self, message: bytes) -> None:
        """Handle a message. Raises `MessageError` for one that the peer may not send."""

    def alive(self) -> None:
        """Note that bytes have arrived, whether or not they complete a message."""

    def closed(self, why: str) -> None:
        """Handle the end of the connection. Nothing is received afterwards."""


class FrameConnection(asyncio.Protocol):
    """One end of a connection. Messages are read one by one with `next`, and from `listen` on by a handler."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._unread: deque[bytes] = deque()
        self._waiting: asyncio.Future[bytes] | None = None
        self._handler: MessageHandler | None = None
        self._why = ""
        self._unsent: list[bytes] = []
        self.transport: asyncio.Transport

    @property
    def open(self) -> bool:
        """Return whether messages can be sent and received."""
        return not self._why

    @property
    def peer(self) -> str:
        """The address of the other end."""
        found: Any = self.transport.get_extra_info("peername")
        return str(found[0]) if found else "?"

    # --- asyncio.Protocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        if self._why:
            return
        if self._handler is not None:
            self._handler.alive()
        try:
            for message in self._reader.feed(data):
                self._take(message)
                if not self.open:
                    return
        except (FrameError, ValueError) as error:  # a message that cannot be decoded is a `ValueError`, too
            self.abort(f"the peer sent what cannot be understood: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(CLOSED if exc is None else f"{CLOSED} ({exc})")

    # --- both directions --------------------------------------------------------------------------------

    def send(self, message: bytes) -> None:
        """Send a message, unless the connection is closed. All messages of a turn of the event loop go together."""
        if self._why:
            return
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += frame_message(message)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self.transport.is_closing():
            self.transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    async def next(self) -> bytes:
        """Return the next message. Raises `ConnectionError` at the end, and `TimeoutError`."""
        if self._unread:
            return self._unread.popleft()
        if self._why:
            raise ConnectionError(self._why)
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                return await self._waiting
        finally:
            self._waiting = None

    def listen(self, handler: MessageHandler) -> None:
        """Pass all further messages to a handler. The peer is known from now on, so they may be large."""
        self._handler = handler
        self._reader.max_message_bytes = MAX_MESSAGE_BYTES
        unread, self._unread = self._unread, deque()
        for message in unread:
            handler.received(message)

    def take_over(self, protocol: asyncio.Protocol) -> None:
        """Give the connection to another protocol, which gets the bytes that have arrived since the last message."""
        self._flush()
        self._why = "the connection carries other bytes"
        rest = self._reader.take_rest()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if rest:
            protocol.data_received(rest)

    def close(self, why: str = CLOSED) -> None:
        """Close the connection after what was sent."""
        if not self._why:
            self._flush()
            self.transport.close()
            self._end(why)

    def abort(self, why: str) -> None:
        """Close the connection at once."""
        if not self._why:
            self.transport.abort()
            self._end(why)

    def _take(self, message: bytes) -> None:
        if self._handler is not None:
            self._handler.received(message)
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(message)
        else:
            self._unread.append(message)

    def _end(self, why: str) -> None:
        if self._why:
            return
        self._why = why
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(why))
        if self._handler is not None:
            self._handler.closed(why)
