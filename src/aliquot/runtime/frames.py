"""Frames between the server and a sandbox: a fixed header, then bytes as they are.

A request has two parts: the environment as JSON, and the payload (of an init: empty, and its description is the first
part). A reply has two parts too: the result as JSON, and the pickled result where there is one. Its header says whether
the pipes of the sandbox hold output, so that the server need not look after a silent run. There is one request under
way at a time, so that whatever has arrived belongs to it. The large buffers of a pickle may be in a parcel (`values`),
whose number on the sandbox's side channel (`side`) the header has.
"""

from __future__ import annotations

import socket
import struct

REQUEST = struct.Struct("<BxHII")  # what, parcel (none: 0), bytes of the first part, bytes of the second
REPLY = struct.Struct("<B?HII")  # status, output to read, parcel (none: 0), bytes of the JSON, of the pickle (none: 0)

INIT = 1
RUN = 2  # the payload is a JSON object
RUN_PICKLED = 3  # the payload is a pickle of (args, kwargs)
RUN_SHARED = 4  # the same, and the result may come in a parcel
RUN_HANDED = 6  # the payload is what another function returned, or another gets what is returned: pickled, if need be
RUN_GROUP = 5  # the first part says which functions of a group run, one on what the other returned

# The reply's status; the first three are OpenWhisk's.
SUCCESS = 0
APPLICATION_ERROR = 1
DEVELOPER_ERROR = 2  # the sandbox is spent
INTERNAL_ERROR = 3  # before the init: it could not be made a sandbox

_CHUNK = 65536


def receive(sock: socket.socket) -> tuple[int, int, bytes, bytes | memoryview]:
    """The next request, waited for. `EOFError` when the server has gone."""
    return _whole(sock, sock.recv(_CHUNK))


def receive_first(sock: socket.socket) -> tuple[tuple[int, int, bytes, bytes | memoryview], list[int]]:
    """The same for the first, with which the side channel's descriptor may come."""
    data, fds, _, _ = socket.recv_fds(sock, _CHUNK, 1, socket.MSG_CMSG_CLOEXEC)
    return _whole(sock, data), list(fds)


def _whole(sock: socket.socket, data: bytes) -> tuple[int, int, bytes, bytes | memoryview]:
    if len(data) < REQUEST.size:
        data = _complete(sock, data, REQUEST.size)
    what, parcel, first, second = REQUEST.unpack_from(data)
    middle = REQUEST.size + first
    if len(data) == middle + second:
        return what, parcel, data[REQUEST.size : middle], data[middle:]
    whole = memoryview(_complete(sock, data, middle + second))
    return what, parcel, bytes(whole[REQUEST.size : middle]), whole[middle:]


def _complete(sock: socket.socket, begun: bytes, size: int) -> bytes:
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
    return bytes(whole) if size <= _CHUNK else whole  # type: ignore[return-value] # read, never changed


def send(
    sock: socket.socket, status: int, result: bytes, pickled: bytes = b"", parcel: int = 0, *, printed: bool = True
) -> None:
    """Send a reply. `printed` is false when the output pipes are known to be empty."""
    head = REPLY.pack(status, printed, parcel, len(result), len(pickled))
    if len(result) + len(pickled) < _CHUNK:
        sock.sendall(head + result + pickled)
        return
    for part in (head, result, pickled):
        sock.sendall(part)
