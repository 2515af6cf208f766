"""The server's end of a sandbox's control channel (`aliquot.runtime.control_channel`)."""

import contextlib
import socket
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from aliquot.core.units import KIB, MIB
from aliquot.live.node.base import NestedRun, PartReceiver, Status
from aliquot.live.node.cell import EventLoop
from aliquot.live.node.logs import Logs
from aliquot.live.node.shared_buffers import SandboxBuffers, SharedBufferError

_PACKET_BYTES = 256 * KIB
MAX_PART_BYTES = 4 * MIB
_MALFORMED = "the request is not understood"
_check_json = msgspec.json.Decoder(Raw).decode


class ControlRequest(Struct, forbid_unknown_fields=True):
    """One request of a sandbox: exactly one of the fields besides `printed` is given."""

    begin: str | None = None
    end: int | None = None
    printed: bool = True
    answer: bool = True  # false: the sandbox goes on without one, because it knows the next step
    allocate: int | None = None
    close: int | None = None
    drop: int | None = None
    take: int | None = None
    part: bool | None = None


_read = msgspec.json.Decoder(ControlRequest).decode


class NestedRunner(Protocol):
    """Begins and ends activations inside a run: the sandbox."""

    logs: Logs

    def begin_inside(self, function: str, *, printed: bool) -> NestedRun | str: ...
    def end_inside(self, status: Status, result: bytes, *, printed: bool) -> NestedRun | None: ...
    def misbehaved(self) -> None: ...


class SandboxChannel:
    def __init__(self, runner: NestedRunner, buffers: SandboxBuffers, loop: EventLoop) -> None:
        self._runner = runner
        self.buffers = buffers
        self._loop = loop
        self._part = bytearray()  # the pieces of a part of the result
        self._waits = False  # the sandbox waits until the caller has taken a part
        self._sock, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        loop.add_reader(self._sock.fileno(), self.read)

    def take_sandbox_end(self) -> int:
        """Return the sandbox's end of this channel. The caller closes it."""
        return self._theirs.detach()

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._theirs.close()

    def read_all(self) -> None:
        """Handle all requests that have arrived."""
        while self.read():
            pass

    def read(self) -> bool:
        """Handle a request, if one has arrived and the channel is open. Return whether there was one."""
        if self._sock.fileno() < 0:
            return False
        try:
            data = self._sock.recv(_PACKET_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()  # the end of the sandbox is noticed elsewhere
            return False
        if self._waits:  # no launcher sends anything then
            self._runner.misbehaved()
            return False
        head, _, body = data.partition(b"\n")
        try:
            request = _read(head)
        except (msgspec.DecodeError, RecursionError):
            self._answer({"error": _MALFORMED})
            return True
        try:
            self._handle(request, body)
        except SharedBufferError as error:
            self._answer({"error": str(error)})
        return True

    def _handle(self, request: ControlRequest, body: bytes) -> None:
        buffers = self.buffers
        if request.begin is not None:
            inner = self._runner.begin_inside(request.begin, printed=request.printed)
            self._answer({"error": inner} if isinstance(inner, str) else {"id": inner.invocation, "env": inner.env})
        elif request.end is not None:
            self._end(request.end, body, printed=request.printed, answer=request.answer)
        elif request.allocate is not None:
            number, buffer = buffers.allocate(request.allocate)
            self._answer({"number": number}, buffer.fd)
        elif request.close is not None:
            buffers.seal(request.close)
            self._answer({})
        elif request.drop is not None:
            buffers.drop(request.drop)
            self._answer({})
        elif request.part is not None:
            self._take_piece(body, more=request.part)
        elif request.take is not None:
            taken = buffers.take(request.take)
            self._answer({"size": taken.size}, taken.fd)
        else:
            self._answer({"error": _MALFORMED})

    def _take_piece(self, piece: bytes, *, more: bool) -> None:
        """Take a piece of a part of the result. The whole part goes to the caller, who may keep the sandbox waiting."""
        self._part += piece
        if len(self._part) > MAX_PART_BYTES:
            self._part.clear()
            self._answer({"error": f"a value that is yielded takes at most {MAX_PART_BYTES} bytes as JSON or base64"})
            return
        if more:
            self._answer({})
            return
        part = bytes(self._part)
        self._part.clear()
        try:
            _check_json(part)
            part.decode()
        except (ValueError, msgspec.DecodeError, RecursionError):
            self._runner.misbehaved()
            return
        receiver: object = self._runner.logs.listener
        if isinstance(receiver, PartReceiver):
            self._waits = True
            receiver.part(part, self._taken)
        else:
            self._answer({"stop": True})

    def _taken(self, goes_on: bool) -> None:
        if self._waits:
            self._waits = False
            self._answer({} if goes_on else {"stop": True})

    def _end(self, status: int, result: bytes, *, printed: bool, answer: bool) -> None:
        try:
            known = Status(status)
            _check_json(result)
            result.decode()
        except (ValueError, msgspec.DecodeError, RecursionError):
            self._runner.misbehaved()
            return
        if known is Status.INTERNAL_ERROR:
            known = Status.DEVELOPER_ERROR  # the platform is not to blame for what a function reports
        following = self._runner.end_inside(known, result, printed=printed)
        if answer:
            self._answer({"env": following.env} if following is not None else {})

    def _answer(self, answer: dict[str, Any], *fds: int) -> None:
        if self._sock.fileno() < 0:  # the sandbox was lost meanwhile
            return
        with contextlib.suppress(OSError):  # the sandbox does not read its replies, or has gone
            socket.send_fds(self._sock, [msgspec.json.encode(answer)], fds)
