"""A connection of a sandbox and its counterpart outside: bytes are passed on in both directions."""

import asyncio
import socket
import struct
from typing import cast

from aliquot.runtime.network import IpAddress

CONNECT_TIMEOUT_S = 60
_RESET = struct.pack("ii", 1, 0)  # the socket option that makes `close` reset the connection


def reset(connection: socket.socket) -> None:
    """Close a connection so that the other end gets an error, and not an end of the data."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()


class RelayedConnection:
    """Connects a sandbox's connection with its destination until both ends have closed it, or one has failed."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self._ends: list[_ConnectionEnd] = []

    async def run(self, address: IpAddress, port: int) -> None:
        """Connect to the destination and pass bytes on. The sandbox sees a reset if it cannot be reached."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - the version
        outer = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.sock_connect(outer, (str(address), port))
            outer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for each in (outer, self._inner):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            outer.close()
            reset(self._inner)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        try:
            for sock in (self._inner, outer):
                _, end = await loop.connect_accepted_socket(_ConnectionEnd, sock)
                self._ends.append(end)
            inside, outside = self._ends
            inside.connect(outside)
            outside.connect(inside)
            await asyncio.wait((inside.ended, outside.ended))  # which does not cancel them
        except OSError:
            pass  # an end failed before both were there
        finally:
            for end in self._ends:
                end.abort()
            if len(self._ends) < 2:  # noqa: PLR2004 - both
                outer.close()
                self._inner.close()


class _ConnectionEnd(asyncio.Protocol):
    """One of the two ends. It reads only when the other one can write."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._other: _ConnectionEnd | None = None
        self._early: list[bytes] = []  # read before there was another end
        self._has_read_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connect(self, other: "_ConnectionEnd") -> None:
        """Pass on to the other end what is read here, from now on."""
        self._other = other
        early, self._early = self._early, []
        if other.ended.done():
            self.abort()
            return
        other.transport.writelines(early)
        if self._has_read_all:
            self._pass_on_end(other)
        elif not self.ended.done():
            self.transport.resume_reading()

    @property
    def _open_end(self) -> "_ConnectionEnd | None":
        """The other end, if it can still be used."""
        return self._other if self._other is not None and not self._other.ended.done() else None

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
            self.transport.pause_reading()
        elif (other := self._open_end) is not None:
            other.transport.write(data)

    def eof_received(self) -> bool:
        """Pass on the end of the data. The other direction stays open until it ends, too."""
        self._has_read_all = True
        if (other := self._open_end) is not None:
            self._pass_on_end(other)
        return True

    def _pass_on_end(self, other: "_ConnectionEnd") -> None:
        if other._has_read_all:  # noqa: SLF001 - of the same class
            other.transport.close()  # which closes this end, too
        else:
            other.transport.write_eof()

    def pause_writing(self) -> None:
        if (other := self._open_end) is not None:
            other.transport.pause_reading()

    def resume_writing(self) -> None:
        if (other := self._open_end) is not None:
            other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if (other := self._open_end) is not None:
            if error is not None:
                other.abort()
            else:
                other.transport.close()

    def abort(self) -> None:
        """Reset the connection."""
        if not self.ended.done():
            sock = self.transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()
