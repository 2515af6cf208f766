"""A sandbox's side channel to the server: what it may ask while a run goes on.

A Unix socket of packets. Each question is a line of JSON, perhaps with a body behind it, and is answered by a JSON
object; descriptors come along. Threads take turns. The questions:

    {"begin": FUNCTION}              another function of the group runs now, inside this run: its id and environment
    {"end": STATUS} and its result   what ran inside has ended; with the steps of a chain: the next one's environment
    {"room": BYTES}                  memory for a parcel, with its descriptor
    {"close": NUMBER}                nobody writes to it any more: it can be handed over
    {"drop": NUMBER}                 it is not needed after all
    {"take": NUMBER}                 a parcel that has come: its descriptor and size

The first two also say, as `printed`, whether the output pipes hold anything: from here on it is another's output.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import threading
from typing import Any

from . import values

_PACKET = 256 * 1024


class Refused(Exception):  # noqa: N818 - it reads as what it says
    """The server will not; the text says why."""


class Side:
    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)
        self._turn = threading.Lock()
        self._pid = os.getpid()

    def ask(self, question: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], int]:
        """The answer, and the descriptor that came with it; -1 when none did. Raises `Refused`."""
        if os.getpid() != self._pid:
            raise Refused("a process that the function has forked cannot ask")
        with self._turn:
            self._sock.sendall(json.dumps(question).encode() + b"\n" + body)
            data, fds, _, _ = socket.recv_fds(self._sock, _PACKET, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise Refused("the server has gone")
        answer = json.loads(data)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer, fds[0] if fds else -1

    def put(self, buffers: list[memoryview]) -> int:
        """A parcel with copies of these; its number. Raises `Refused`, when there is no room for it, say."""
        size = values.places([len(buffer) for buffer in buffers])[1]
        answer, fd = self.ask({"room": size})
        try:
            values.fill(fd, buffers)
        except BaseException:
            self.ask({"drop": answer["number"]})
            raise
        finally:
            os.close(fd)
        self.ask({"close": answer["number"]})
        return int(answer["number"])

    def take(self, number: int) -> mmap.mmap:
        """The memory of a parcel that has come."""
        answer, fd = self.ask({"take": number})
        try:
            return values.take(fd, answer["size"])
        finally:
            os.close(fd)
