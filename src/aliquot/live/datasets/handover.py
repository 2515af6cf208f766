"""The way of descriptors to the agent: a socket beside the one for messages, for those cannot carry them."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from aliquot.storage.frames import packet
from aliquot.storage.messages import ViewMessage


class Handover:
    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake  # starts the agent, should there be none
        self._sock: socket.socket | None = None
        self._waiting: deque[tuple[bytes, int | None]] = deque()

    def send(self, message: ViewMessage, descriptor: int | None = None) -> None:
        """In order. The descriptor is taken over, and closed once the agent has it."""
        self._waiting.append((packet(message), descriptor))
        if self._sock is None:
            self._wake()
        self._send()

    def connect(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._send()

    def disconnect(self) -> None:
        """The agent is gone."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_writer(self._sock.fileno())
            self._sock = None

    def close(self) -> None:
        """Let go of what nobody got: whoever opens a file there is told so by the kernel."""
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
                break  # whoever reads the messages will learn why
            self._waiting.popleft()
            if descriptor is not None:
                os.close(descriptor)
        loop.remove_writer(sock.fileno())
