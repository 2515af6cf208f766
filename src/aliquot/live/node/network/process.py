"""The relay's process, started as `python -m aliquot.live.node.network.process FD`. It ends when the server does."""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections import deque

import msgspec
import uvloop

from aliquot.budgets import Reservation
from aliquot.live.node.network.messages import MAX_PACKET_BYTES, FromRelay, ToRelay
from aliquot.live.node.network.relay import MAX_LOOKUPS, NetworkRelay


class RelayChannel:
    """The relay's end of the channel to the server."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[tuple[bytes, int | None, Reservation | None]] = deque()
        self._decoder = msgspec.json.Decoder(ToRelay)
        self._relay: NetworkRelay | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        """Close all networks."""
        if self._relay is not None:
            self._relay.close()

    def send(self, message: FromRelay, descriptor: int | None, reserved: Reservation | None) -> None:
        """Send a message, in order. When it has been sent, the descriptor is closed and the reservation is dropped."""
        self._unsent.append((msgspec.json.encode(message), descriptor, reserved))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._unsent:
            data, descriptor, _ = self._unsent[0]
            try:
                socket.send_fds(self._sock, [data], [] if descriptor is None else [descriptor])
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except OSError:
                return  # the server has ended, which reading will find out
            self._unsent.popleft()
            if descriptor is not None:
                os.close(descriptor)
        self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, MAX_PACKET_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        try:
            if data:
                self._handle(self._decoder.decode(data), fds)
            elif not self.ended.done():
                self.ended.set_result(None)
        finally:
            for fd in fds:
                os.close(fd)

    def _handle(self, message: ToRelay, fds: list[int]) -> None:
        if message.start is not None:
            self._relay = NetworkRelay(message.start, self.send)
        elif self._relay is None:
            raise ValueError("the first message must have the settings")
        elif message.add is not None:
            self._relay.add(message.add, fds[0], message.tenant, configured=message.configured)
        elif message.assign is not None:
            self._relay.assign(message.assign, message.tenant)
        elif message.remove is not None:
            self._relay.remove(message.remove)


async def serve(sock: socket.socket) -> None:
    """Run the relay until the server closes the channel."""
    channel = RelayChannel(sock)
    await channel.ended
    channel.close()


def main() -> None:
    os.environ["UV_THREADPOOL_SIZE"] = str(MAX_LOOKUPS)  # uvloop looks up host names in threads of libuv
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then closes the channel
    max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    with socket.socket(fileno=int(sys.argv[1])) as sock:
        uvloop.run(serve(sock))


if __name__ == "__main__":
    main()
