"""The server's end of a sandbox's control channel (`aliquot.runtime.control_channel`)."""

import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from aliquot.live.node.base import NestedRun, Status
from aliquot.live.node.cell import EventLoop
from aliquot.live.node.shared_buffers import SandboxBuffers, SharedBufferError

_PACKET = 256 * 1024
_NOT_SO = "it is not asked like this"
_check_json = msgspec.json.Decoder(Raw).decode


class ControlRequest(Struct, forbid_unknown_fields=True):
    begin: str | None = None
    end: int | None = None
    printed: bool = True
    allocate: int | None = None
    close: int | None = None
    drop: int | None = None
    take: int | None = None


_read = msgspec.json.Decoder(ControlRequest).decode


class NestedRunner(Protocol):
    """Whose side it is: the sandbox, while it runs something."""

    def begin_inside(self, function: str, *, printed: bool) -> NestedRun | str: ...
    def end_inside(self, status: Status, result: bytes, *, printed: bool) -> NestedRun | None: ...
    def misbehaved(self) -> None: ...


class SandboxChannel:
    def __init__(self, runner: NestedRunner, buffers: SandboxBuffers, loop: EventLoop) -> None:
        self._runner = runner
        self.buffers = buffers
        self._loop = loop
        self._sock, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        loop.add_reader(self._sock.fileno(), self._readable)

    def introduce(self, sock: socket.socket) -> Callable[[bytes], int]:
        """What sends the first frame, and with its first bytes the other end of this channel."""

        def send(data: bytes) -> int:
            sent = socket.send_fds(sock, [data], [self._theirs.fileno()])
            self._theirs.close()
            return sent

        return send

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._theirs.close()

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()  # what becomes of the sandbox is learnt elsewhere
            return
        head, _, body = data.partition(b"\n")
        try:
            question = _read(head)
        except (msgspec.DecodeError, RecursionError):
            self._answer({"error": _NOT_SO})
            return
        try:
            self._take(question, body)
        except SharedBufferError as error:
            self._answer({"error": str(error)})

    def _take(self, question: ControlRequest, body: bytes) -> None:
        buffers = self.buffers
        if question.begin is not None:
            inner = self._runner.begin_inside(question.begin, printed=question.printed)
            self._answer({"error": inner} if isinstance(inner, str) else {"id": inner.invocation, "env": inner.env})
        elif question.end is not None:
            self._end(question.end, body, printed=question.printed)
        elif question.allocate is not None:
            number, buffer = buffers.allocate(question.allocate)
            self._answer({"number": number}, buffer.fd)
        elif question.close is not None:
            buffers.seal(question.close)
            self._answer({})
        elif question.drop is not None:
            buffers.drop(question.drop)
            self._answer({})
        elif question.take is not None:
            taken = buffers.take(question.take)
            self._answer({"size": taken.size}, taken.fd)
        else:
            self._answer({"error": _NOT_SO})

    def _end(self, status: int, result: bytes, *, printed: bool) -> None:
        try:
            known = Status(status)
            _check_json(result)
            result.decode()
        except (ValueError, msgspec.DecodeError, RecursionError):
            self._runner.misbehaved()
            return
        if known is Status.INTERNAL_ERROR:
            known = Status.DEVELOPER_ERROR  # whatever a function did, the platform did not
        following = self._runner.end_inside(known, result, printed=printed)
        self._answer({"env": following.env} if following is not None else {})

    def _answer(self, answer: dict[str, Any], *fds: int) -> None:
        if self._sock.fileno() < 0:  # it was lost meanwhile
            return
        with contextlib.suppress(OSError):  # it asks, but does not listen; or has gone
            socket.send_fds(self._sock, [msgspec.json.encode(answer)], fds)
