"""Send file descriptors to the agent, through a separate socket because the message stream cannot carry them."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from aliquot.storage.frames import packet
from aliquot.storage.messages import ViewMessage


class DescriptorChannel:
    """Queues messages with descriptors until the agent takes them."""

    def __init__(self, start_agent: Callable[[], None]) -> None:
        self._start_agent = start_agent  # starts the agent if none runs
        self._sock: socket.socket | None = None
        self._waiting: deque[tuple[bytes, int | None]] = deque()

    def send(self, message: ViewMessage, descriptor: int | None = None) -> None:
        """Send a message, in order. The channel owns the descriptor, and closes it after it was sent."""
        self._waiting.append((packet(message), descriptor))
        if self._sock is None:
            self._start_agent()
        self._send()

    def connect(self, sock: socket.socket) -> None:
        """Send to this agent from now on, starting with the queued messages."""
        sock.setblocking(False)
        self._sock = sock
        self._send()

    def disconnect(self) -> None:
        """Stop sending, because the agent has ended."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_writer(self._sock.fileno())
            self._sock = None

    def close(self) -> None:
        """Close descriptors that were not sent. The kernel then fails requests of their views."""
        for _, descriptor in self._waiting:
            if descriptor is not None:
                os.close(descriptor)
        self._waiting.clear()

    def _send(self) -> None:
        sock = self._sock
        if sock is None:
            return
        loop = asyncio.get_running_loop()
        while self._waiting:
            message, descriptor = self._waiting[0]
            try:
                socket.send_fds(sock, [message], [] if descriptor is None else [descriptor])
            except BlockingIOError:
                loop.add_writer(sock.fileno(), self._send)
                return
            except OSError:
                break  # the agent has ended, which the reader of the message stream reports
            self._waiting.popleft()
            if descriptor is not None:
                os.close(descriptor)
        loop.remove_writer(sock.fileno())
