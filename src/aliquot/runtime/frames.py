"""Frames between the server and a sandbox: a fixed header, then bytes as they are.

A request has two parts, the environment as JSON and the payload. The first part of an init is the function's
description, and its second part is empty. A reply has two parts too, the result as JSON and the pickled result if there
is one. Its header says whether the output pipes of the sandbox hold anything, so the server need not read them after
a silent run. Requests run one at a time, in the order in which they arrive, and each has one reply. Only requests that
are handed ahead (`RUN_AHEAD`) arrive before the reply to the one before.

The large buffers of a pickle may be in a shared buffer (`values`). The header then has the number of that buffer on the
sandbox's control channel (`control_channel`).
"""

from __future__ import annotations

import socket
import struct
from typing import Callable  # noqa: UP035 - Python 3.9 on

REQUEST = struct.Struct("<BxHII")  # kind, shared buffer or 0, bytes of the first part, bytes of the second part
# Status, output to read, shared buffer or 0, bytes of the JSON, bytes of the pickle. A sandbox that takes runs ahead
# has no shared buffers. There the third field is the time of the run in units of `RUN_TIME_UNIT_S`.
REPLY = struct.Struct("<B?HII")
RUN_TIME_UNIT_S = 1e-5
MAX_RUN_TIME_UNITS = 65_535

INIT = 1
RUN = 2  # the payload is a JSON object
RUN_PICKLED = 3  # the payload is a pickle of (args, kwargs)
RUN_SHARED = 4  # like RUN_PICKLED, and the result may come in a shared buffer
RUN_GROUP = 5  # the first part lists the functions of a group that run, each on the result of the one before
RUN_HANDED = 6  # one step of a sequence of SDK functions, whose values may be pickles
RUN_BATCH = 8  # the first part describes the items of a batch, whose payloads are the second part (`batch`)
UNLOAD = 9  # a kernel graph leaves its device until the next `LOAD`
LOAD = 10
RUN_AHEAD = 7  # like RUN, to a sandbox that may be busy; it runs only if the launcher gets a token for it

EXECUTOR = "executor"  # the entry point of a process that serves graphs (`kernels/executor/process.py`)

# The status of a reply. The first three are OpenWhisk's.
SUCCESS = 0
APPLICATION_ERROR = 1
DEVELOPER_ERROR = 2  # the server ends the sandbox
INTERNAL_ERROR = 3  # only before the init: the process could not be made a sandbox
NOT_RUN = 4  # the server has taken the run back, or it must not follow the one before

_CHUNK_BYTES = 65536
_MAX_DESCRIPTORS = 240


class RequestReader:
    """Receives requests, of which several may arrive at once."""

    def __init__(self, sock: socket.socket, wait: Callable[[], object]) -> None:
        """`wait` returns when there is something to receive."""
        self._sock = sock
        self._wait = wait
        self._rest = b""  # begins with the next request

    def receive(self) -> tuple[int, int, bytes, bytes | memoryview]:
        """Wait for the next request and return it. Raises `EOFError` when the server has ended."""
        data = self._rest
        if not data:
            self._wait()
            data = self._sock.recv(_CHUNK_BYTES)
        if len(data) >= REQUEST.size:
            kind, buffer, first, second = REQUEST.unpack_from(data)
            middle = REQUEST.size + first
            end = middle + second
            if len(data) >= end:
                self._rest = data[end:]
                return kind, buffer, data[REQUEST.size : middle], data[middle:end]
        self._rest = b""
        return _complete_request(self._sock, data)


def receive_first(sock: socket.socket) -> tuple[tuple[int, int, bytes, bytes | memoryview], list[int]]:
    """Wait for the first request, which may bring descriptors (`launcher`)."""
    data, fds, _, _ = socket.recv_fds(sock, _CHUNK_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    return _complete_request(sock, data), list(fds)


def _complete_request(sock: socket.socket, data: bytes) -> tuple[int, int, bytes, bytes | memoryview]:
    if len(data) < REQUEST.size:
        data = _receive_rest(sock, data, REQUEST.size)
    kind, buffer, first, second = REQUEST.unpack_from(data)
    middle = REQUEST.size + first
    if len(data) == middle + second:
        return kind, buffer, data[REQUEST.size : middle], data[middle:]
    whole = memoryview(_receive_rest(sock, data, middle + second))
    return kind, buffer, bytes(whole[REQUEST.size : middle]), whole[middle:]


def _receive_rest(sock: socket.socket, begun: bytes, size: int) -> bytes:
    if not begun:
        raise EOFError
    whole = bytearray(size)
    whole[: len(begun)] = begun
    view = memoryview(whole)
    have = len(begun)
    while have < size:
        got = sock.recv_into(view[have:])
        if not got:
            raise EOFError
        have += got
    return bytes(whole) if size <= _CHUNK_BYTES else whole  # type: ignore[return-value] # read, never changed


def send(
    sock: socket.socket, status: int, result: bytes, pickled: bytes = b"", buffer: int = 0, *, printed: bool = True
) -> None:
    """Send a reply. `printed` is false when the output pipes are known to be empty."""
    head = REPLY.pack(status, printed, buffer, len(result), len(pickled))
    if len(result) + len(pickled) < _CHUNK_BYTES:
        sock.sendall(head + result + pickled)
        return
    for part in (head, result, pickled):
        sock.sendall(part)
