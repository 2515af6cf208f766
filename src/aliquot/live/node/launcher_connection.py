"""The server's connection to the launcher in a sandbox: request frames go out, reply frames come back.

The connection knows frames and nothing of runs. A reply above a mebibyte is received into the memory in which it stays.
If there is no memory for it, nothing is read until there is.
"""

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import asdict

from aliquot.budgets import Reservation
from aliquot.core.units import MIB
from aliquot.live.bodies.large import LARGE_BODY_BYTES, allocate
from aliquot.live.node.base import Launch, RunRequest
from aliquot.live.node.cell import Cell, EventLoop
from aliquot.live.node.reply_memory import ReplyMemory
from aliquot.live.node.shared_buffers import SandboxBuffers
from aliquot.runtime import frames
from aliquot.runtime.frames import INIT, REPLY, REQUEST

_encode = msgspec.json.Encoder().encode
_RECV_BYTES = 65536
_SLACK_BYTES = MIB  # a reply may be larger than the result limit by the JSON of an error


def _describe_launch(
    launch: Launch,
    result_bytes: int,
    command: list[str] | None,
    data_bytes: int | None,
    buffers_token: str | None,
    *,
    cpu_group: bool,
    ahead: bool,
    progress: bool,
) -> bytes:
    """Return the body of an init, as `aliquot.runtime.launcher` reads it."""
    description = {
        "name": launch.function,
        "code": launch.code,
        "binary": launch.binary,
        "main": launch.main or "main",
        "env": launch.env,
        "sdk": launch.sdk,
        "result_bytes": result_bytes,
        "command": command,
        "data_bytes": data_bytes,
        "buffers_token": buffers_token,
        "cpu_group": cpu_group,  # a descriptor comes with the init
        "ahead": ahead,  # the same
        "progress": progress,  # the same
        "module": launch.module,
        "constants": [digest for digest, _ in launch.constants],  # a descriptor each
        "init_names": launch.init_names,
        "file": launch.file,
        "device_bytes_per_s": launch.device_bytes_per_s,
    }
    if launch.members:
        description |= {"members": [asdict(member) for member in launch.members], "first": launch.main}
    return msgspec.json.encode(description)


def run_head(request: RunRequest, buffers: SandboxBuffers | None) -> bytes:
    """Return the frame of a run up to its payload. The shared buffers of the run are added to those of the sandbox."""
    buffer_number, object_buffers = 0, None
    if buffers is not None and request.shared_buffer is not None:
        buffer_number = buffers.put(request.shared_buffer)
    if buffers is not None and request.objects is not None:
        object_buffers = [buffers.put(one) for one in request.objects]
    if request.items:
        kind, env = frames.RUN_BATCH, _encode({"env": request.env, "items": request.items, "objects": object_buffers})
    elif request.steps or request.handed or request.hand_on or object_buffers is not None:
        kind = frames.RUN_GROUP if request.steps else frames.RUN_HANDED
        env = _describe_run(request, object_buffers)
    else:
        env = _encode(request.env)
        kind = (frames.RUN_SHARED if request.share else frames.RUN_PICKLED) if request.pickled else frames.RUN
    return REQUEST.pack(kind, buffer_number, len(env), len(request.payload)) + env


def ahead_frame(request: RunRequest) -> bytes:
    """Return the frame of a plain run that is handed ahead."""
    env = _encode(request.env)
    return b"".join((REQUEST.pack(frames.RUN_AHEAD, 0, len(env), len(request.payload)), env, request.payload))


def _describe_run(request: RunRequest, object_buffers: list[int] | None) -> bytes:
    """Return the first part of the frame of a run in a group, in a sequence of SDK functions, or with objects."""
    return _encode({
        "env": request.env,
        "steps": request.steps,
        "pickled": request.pickled,
        "share": request.share,
        "handed": request.handed,
        "hand_on": request.hand_on,
        "defaults": request.defaults,
        "objects": object_buffers,
    })  # fmt: skip


class InitRequest:
    """The first request to a launcher, with the descriptors that it gets."""

    __slots__ = ("_data", "_fds")

    def __init__(self, body: bytes, fds: list[int]) -> None:
        """`body` describes the launch. The descriptors are closed here."""
        self._data = REQUEST.pack(INIT, 0, len(body), 0) + body
        self._fds = fds

    def send(self, connection: "LauncherConnection") -> bool:
        """Send the request. Return False when the launcher has gone."""
        try:
            return connection.send(self._data, fds=self._fds)
        finally:
            self.close()

    def send_on(self, sock: socket.socket) -> None:
        """Send the request on a socket that nothing else uses. If the launcher has gone, its end is noticed there."""
        with contextlib.suppress(OSError):
            socket.send_fds(sock, [self._data], self._fds)
        self.close()

    def close(self) -> None:
        """Close the descriptors of a request that is not sent any more."""
        while self._fds:
            os.close(self._fds.pop())


def make_init(
    launch: Launch,
    result_bytes: int,
    command: list[str] | None,
    data_bytes: int | None,
    buffers_token: str | None,
    fds: tuple[int | None, ...],
) -> InitRequest:
    """Return the init with its descriptors: CPU group, tokens of runs ahead, progress, files, control channel."""
    given = {"cpu_group": fds[0] is not None, "ahead": fds[1] is not None, "progress": fds[2] is not None}
    body = _describe_launch(launch, result_bytes, command, data_bytes, buffers_token, **given)
    return InitRequest(body, [fd for fd in fds if fd is not None])


class LargeReply:
    """A reply that is received into a memory mapping of its own."""

    __slots__ = ("_size", "buffer_number", "printed", "received", "status", "whole")

    def __init__(self, data: bytes, reserved: tuple[Reservation, ...]) -> None:
        """`data` is the reply's head with the first part of its body, `reserved` its part of the memory's budget."""
        self.status, self.printed, self.buffer_number, self._size, pickled_size = REPLY.unpack_from(data)
        self.whole = allocate(self._size + pickled_size, reserved)
        self.received = len(data) - REPLY.size
        self.whole[: self.received] = data[REPLY.size :]

    @property
    def missing(self) -> memoryview:
        return self.whole[self.received :]

    @property
    def result(self) -> memoryview:
        return self.whole[: self._size]

    @property
    def pickled(self) -> memoryview | None:
        return self.whole[self._size :] or None


class ReplyListener(Protocol):
    """Receives the events of a connection: the sandbox."""

    def awaits_more(self) -> bool:
        """Return whether further replies may follow the one that has arrived."""
        ...

    def replied(
        self, status: int, result: bytes, pickled: bytes | memoryview | None, buffer_number: int, *, printed: bool
    ) -> None: ...

    def replied_large(self, reply: LargeReply) -> None:
        """Handle a reply whose result is larger than `LARGE_BODY_BYTES`."""

    def malformed_reply(self) -> None:
        """Handle bytes that no launcher sends."""

    def hung_up(self, *, unread: bool) -> None:
        """Handle the end of the connection. `unread`: the launcher has not read the last request."""


class LauncherConnection:
    __slots__ = (
        "_closed", "_expected", "_large", "_listener", "_loop", "_max_reply_bytes", "_memory", "_outbox", "_partial",
        "_recv", "_send", "_sock", "_tenant", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        cell: Cell,
        listener: ReplyListener,
        loop: EventLoop,
        launch: Launch,
        result_bytes: int,
        memory: ReplyMemory,
    ) -> None:
        """`result_bytes` limits the result of one call."""
        self._sock = cell.sock
        self._send, self._recv = cell.sock.send, cell.sock.recv  # a warm call uses each once
        self._listener = listener
        self._loop = loop
        self._max_reply_bytes = result_bytes * launch.batch + _SLACK_BYTES
        self._partial: bytearray | None = None  # the first bytes of a reply
        self._expected = 0  # how many bytes that reply has
        self._large: LargeReply | None = None
        self._tenant = launch.tenant
        self._memory = memory
        self._waiting = False  # a large reply has begun, and there is no memory for it
        self._outbox: list[memoryview] = []
        self._closed = False
        self.resume()

    def pause(self) -> None:
        """Stop reading replies."""
        self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        self._loop.add_reader(self._sock.fileno(), self.read)

    def close(self) -> None:
        """Stop reading and writing. The socket belongs to the cell, which closes it."""
        self._closed = True
        if self._outbox:
            self._outbox.clear()
            self._loop.remove_writer(self._sock.fileno())
        self._waiting, self._large = False, None
        self.pause()

    def send(self, head: bytes, large: bytes | memoryview = b"", fds: Sequence[int] = ()) -> bool:
        """Send a request, whose body may follow as `large`. Return False when the launcher has gone."""
        try:
            sent = socket.send_fds(self._sock, [head], fds) if fds else self._send(head)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(head) or large:
            self._outbox = [part for part in (memoryview(head)[sent:], memoryview(large)) if part]
            self._loop.add_writer(self._sock.fileno(), self._write)
        return True

    def send_more(self, requests: bytes) -> None:
        """Send requests behind others, of which some bytes may not be sent yet."""
        if self._outbox:
            self._outbox.append(memoryview(requests))
        else:
            self.send(requests)  # if the launcher has gone, reading finds the connection closed

    def _write(self) -> None:
        outbox = self._outbox
        try:
            while outbox:
                outbox[0] = outbox[0][self._send(outbox[0]) :]
                if outbox[0]:
                    return
                del outbox[0]
        except BlockingIOError:
            return
        except OSError:
            outbox.clear()  # reading will find the connection closed
        self._loop.remove_writer(self._sock.fileno())

    @property
    def received(self) -> int:
        """The number of bytes that have arrived of an incomplete reply, or -1 when there is none."""
        if self._large is not None:
            return self._large.received
        return len(self._partial) if self._partial is not None else -1

    @property
    def lacking_memory(self) -> str | None:
        """The reason for not reading the reply that has begun, or None."""
        return self._memory.refusal(self._tenant, self._expected) if self._waiting else None

    def read(self) -> None:
        """Receive some bytes, and report the replies that are complete."""
        if self._large is not None or self._waiting:
            self._read_large()
            return
        try:
            data = self._recv(_RECV_BYTES)
        except BlockingIOError:
            return
        except OSError:
            # The connection was reset, not closed: the launcher ended with the request unread.
            self._listener.hung_up(unread=True)
            return
        if not data:
            self._listener.hung_up(unread=False)
            return
        if self._partial is not None:
            self._partial += data
            if len(self._partial) < self._expected:
                return
            data = bytes(self._partial)
        while data and not self._closed:
            data = self._take_reply(data)

    def _take_reply(self, data: bytes) -> bytes:
        """Report the first reply in the data, or keep its beginning. Return the data behind it."""
        if len(data) < REPLY.size:
            self._partial, self._expected = bytearray(data), REPLY.size
            return b""
        status, printed, number, size, pickled_size = REPLY.unpack_from(data)
        expected = REPLY.size + size + pickled_size
        if len(data) < expected <= self._max_reply_bytes:
            self._expect(data, expected)
            return b""
        self._partial = None
        if len(data) != expected and (len(data) < expected or not self._listener.awaits_more()):
            self._listener.malformed_reply()
            return b""
        end = REPLY.size + size
        self._listener.replied(status, data[REPLY.size : end], data[end:expected] or None, number, printed=printed)
        return data[expected:]

    def _expect(self, data: bytes, expected: int) -> None:
        """Keep the first part of a reply. A large one gets its memory, or is not read until there is some."""
        self._partial, self._expected = bytearray(data), expected
        if expected > LARGE_BODY_BYTES and (self._memory.is_awaited(self._tenant) or not self._begin_large()):
            self._waiting = True
            self.pause()
            self._memory.wait(self._tenant, self._retry_large)

    def _begin_large(self) -> bool:
        """Give the reply its memory. Return False if there is none."""
        reserved = self._memory.reserve(self._tenant, self._expected)
        if reserved is None or self._partial is None:
            return False
        try:
            self._large, self._partial = LargeReply(bytes(self._partial), reserved), None
        except OSError:  # the machine has no memory or no descriptors left
            return False
        return True

    def _retry_large(self) -> bool:
        if not self._waiting:  # the sandbox has gone
            return True
        if not self._begin_large():
            return False
        self._waiting = False
        self.resume()
        return True

    def _read_large(self) -> None:
        reply = self._large
        if reply is None:  # it waits for memory
            return
        try:
            received = self._sock.recv_into(reply.missing)
        except BlockingIOError:
            return
        except OSError:
            received = 0
        if not received:
            self._large = None
            self._listener.hung_up(unread=False)
            return
        reply.received += received
        if reply.received < len(reply.whole):
            return
        self._large = None
        if len(reply.result) > LARGE_BODY_BYTES:
            self._listener.replied_large(reply)
        else:
            result, pickled = bytes(reply.result), reply.pickled
            self._listener.replied(reply.status, result, pickled, reply.buffer_number, printed=reply.printed)
