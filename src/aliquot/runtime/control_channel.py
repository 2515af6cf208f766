"""A sandbox's control channel to the server: the requests that it may send during a run.

The channel is a Unix socket of packets. A request is a line of JSON, perhaps with a body behind it. The reply is a JSON
object, perhaps with a descriptor. Threads take turns. The requests are:

    {"begin": FUNCTION}              another function of the group runs now, inside this run: its id and environment
    {"end": STATUS} and its result   the inner function, or a step of a chain, has ended: the next step's environment
    {"allocate": BYTES}              allocate a shared buffer: its number and descriptor
    {"close": NUMBER}                the shared buffer is written and can be handed over
    {"drop": NUMBER}                 the shared buffer is not needed after all
    {"part": MORE} and a piece       a piece of a part of the result, and whether more follow: whether to stop
    {"take": NUMBER}                 open a shared buffer that has arrived: its descriptor and size

The first two also say, as `printed`, whether the output pipes hold anything. Later output belongs to another function.
An end with `"answer": false` has no reply. The sandbox has got the next step's environment with the run.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import threading
from typing import Any

from . import values

_PACKET_BYTES = 256 * 1024
_PIECE_BYTES = 96 * 1024  # the kernel takes packets of 200 KiB, usually


class ChannelError(Exception):
    """The server refuses a request, and the text says why."""


class ControlChannel:
    """The sandbox's end of the control channel. Thread-safe."""

    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def ask(self, request: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], int]:
        """Return the reply and the descriptor that came with it, or -1. Raises `ChannelError`."""
        if os.getpid() != self._pid:
            raise ChannelError("a process that the function has forked cannot ask")
        with self._lock:
            self._sock.sendall(json.dumps(request).encode() + b"\n" + body)
            data, fds, _, _ = socket.recv_fds(self._sock, _PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise ChannelError("the server has gone")
        reply = json.loads(data)
        if "error" in reply:
            raise ChannelError(reply["error"])
        return reply, fds[0] if fds else -1

    def tell(self, request: dict[str, Any], body: bytes = b"") -> None:
        """Send a request that has no reply."""
        if os.getpid() == self._pid:
            with self._lock:
                self._sock.sendall(json.dumps(request).encode() + b"\n" + body)

    def put(self, buffers: list[memoryview]) -> int:
        """Copy the buffers into a new shared buffer and return its number. Raises `ChannelError` without space."""
        size = values.layout([len(buffer) for buffer in buffers])[1]
        reply, fd = self.ask({"allocate": size})
        try:
            values.fill(fd, buffers)
        except BaseException:
            self.ask({"drop": reply["number"]})
            raise
        finally:
            os.close(fd)
        self.ask({"close": reply["number"]})
        return int(reply["number"])

    def send_part(self, part: bytes) -> bool:
        """Send a part of the result to the caller. Return False if the caller has gone. Waits for a slow caller."""
        while len(part) > _PIECE_BYTES:
            self.ask({"part": True}, part[:_PIECE_BYTES])
            part = part[_PIECE_BYTES:]
        reply, _ = self.ask({"part": False}, part)
        return not reply.get("stop")

    def take(self, number: int) -> mmap.mmap:
        """Map the memory of a shared buffer that has arrived."""
        reply, fd = self.ask({"take": number})
        try:
            return values.map_private(fd, reply["size"])
        finally:
            os.close(fd)
