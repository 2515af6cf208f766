"""The messages of a zygote to the server, and the descriptors that come with them.

A zygote has run code that tenants chose, so nothing that it says is trusted. Only `forked` may bring a descriptor, and
exactly one: a pidfd of a process that the zygote has forked. All other descriptors are closed at once.
"""

import os
import socket
from pathlib import Path

import msgspec
from msgspec import Struct

_PACKET_BYTES = 65536
_MAX_DESCRIPTORS = 4
_MAX_SHOWN_BYTES = 80
_CHILD_LEVELS = 3  # pid namespaces of a sandbox: the server's, the zygote's, its own


class UnexpectedMessageError(Exception):
    """A zygote has sent something that it may not send. The text says what."""


class ZygoteMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """One message. Exactly one of the fields before `why` is set."""

    ready: bool = False
    failed: str | None = None
    forked: int | None = None
    unforked: int | None = None
    why: str = ""
    pidfd: int = -1  # set by `receive`, never by the zygote

    @property
    def is_valid(self) -> bool:
        kinds = (self.ready, *(each is not None for each in (self.failed, self.forked, self.unforked)))
        return sum(kinds) == 1 and self.pidfd == -1


_decoder = msgspec.json.Decoder(ZygoteMessage)


def receive(sock: socket.socket) -> ZygoteMessage | None:
    """Read one message, or return None when the zygote has ended.

    Raises `BlockingIOError`, and `UnexpectedMessageError` after closing all descriptors of the message.
    """
    try:
        data, fds, flags, _ = socket.recv_fds(sock, _PACKET_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    except BlockingIOError:
        raise
    except OSError:
        return None
    try:
        if not data and not fds:
            return None
        message = _decode(data, fds, flags)
    except UnexpectedMessageError:
        for fd in fds:
            os.close(fd)
        raise
    return message


def _decode(data: bytes, fds: list[int], flags: int) -> ZygoteMessage:
    shown = data[:_MAX_SHOWN_BYTES].decode(errors="replace")
    try:
        message = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnexpectedMessageError(f"it sent {shown!r}, which is no message of a zygote") from error
    if not message.is_valid or flags & socket.MSG_TRUNC:
        raise UnexpectedMessageError(f"it sent {shown!r}, which is no message of a zygote")
    entitled = 1 if message.forked is not None else 0
    if len(fds) != entitled or flags & socket.MSG_CTRUNC:
        count = f"more than {len(fds)}" if flags & socket.MSG_CTRUNC else str(len(fds))
        raise UnexpectedMessageError(f"it sent {count} descriptors with {shown!r}, and may send {entitled}")
    return msgspec.structs.replace(message, pidfd=fds[0]) if entitled else message


def pid_of_child(pidfd: int, zygote: int, *, own_namespace: bool) -> int:
    """Return the pid of a process that the zygote has forked, or -1 if it has ended already.

    Raises `UnexpectedMessageError` for any other descriptor, for example a pidfd of the server. With `own_namespace`, a
    child is the first process of a pid namespace inside the zygote's. Otherwise it is a descendant of the zygote.
    """
    fields = _fields(f"/proc/self/fdinfo/{pidfd}")
    if not fields.get("Pid"):
        raise UnexpectedMessageError("it sent a descriptor that is no pidfd")
    pid = int(fields["Pid"])
    if pid <= 0:
        return -1
    if own_namespace:
        pids = fields.get("NSpid", "").split()
        is_child = len(pids) == _CHILD_LEVELS and pids[-1] == "1"
    else:
        is_child = zygote in _ancestors(pid)
    if not is_child:
        raise UnexpectedMessageError("it sent a pidfd of a process that it has not forked")
    return pid


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    for _ in range(_CHILD_LEVELS):
        pid = int(_fields(f"/proc/{pid}/status").get("PPid", 0))
        found.append(pid)
    return found


def _fields(path: str) -> dict[str, str]:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, separator, value in (line.partition(":") for line in lines) if separator}
