"""One sandbox as the server sees it: its socket, its output, its process. Plain callbacks, no task a call."""

import contextlib
import json
import os
import socket
import time
from signal import Signals
from typing import Protocol

import msgspec

from aliquot.live.node.base import Launch, Outcome, RunRequest, Status
from aliquot.live.node.logs import Logs
from aliquot.live.node.process import Loop, Process
from aliquot.runtime import frames
from aliquot.runtime.frames import REPLY, REQUEST

EXITED_IN_INIT = "The action did not initialize and exited unexpectedly."
EXITED = "The action did not produce a valid response and exited unexpectedly."
NOT_JSON = "The action did not produce a valid JSON or JSON Array response: {}"
OUT_OF_MEMORY = "The action exhausted its memory and was aborted."
TIME = "The action exceeded its time limits of {} milliseconds."
TIME_IN_INIT = "The action exceeded its time limits of {} milliseconds during initialization."

_RECV_BYTES = 65536
# More than a launcher sends: the JSON of an error, the bytes of a result.
_SLACK_BYTES = 2**20

_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_encode_env = msgspec.json.Encoder().encode
_STATUSES = {int(status): status for status in Status}
_DEVELOPER_ERROR, _INTERNAL_ERROR = Status.DEVELOPER_ERROR, Status.INTERNAL_ERROR


# A sandbox's states: plain numbers, for they are looked at several times a call.
STARTING = 0  # being forked and initialised
IDLE = 1
RUNNING = 2
GONE = 3  # reported, or told to stop


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer


def error(text: str) -> bytes:
    return json.dumps({"error": text}, ensure_ascii=False).encode()


class Owner(Protocol):
    """Who is told: the node."""

    def initialised(self, sandbox: "Sandbox", seconds: float, logs: tuple[str, ...]) -> None: ...
    def finished(self, sandbox: "Sandbox", outcome: Outcome) -> None: ...
    def lost(self, sandbox: "Sandbox", outcome: Outcome) -> None: ...
    def refused(self, sandbox: "Sandbox") -> None: ...
    def ended(self, sandbox: "Sandbox") -> None:
        """The process is no more."""


class Sandbox:
    __slots__ = (
        "_begun_s", "_expected", "_fds", "_loop", "_opened", "_outbox", "_owner", "_partial", "_reading", "_recv",
        "_result_bytes", "_runs", "_sock", "_timeout_ms", "_transmit", "_unread", "deadline_s", "launch", "logs",
        "number", "process", "state",
    )  # fmt: skip

    def __init__(self, number: int, launch: Launch, owner: Owner, loop: Loop, result_bytes: int) -> None:
        self.number = number
        self.launch = launch
        self.process = Process(loop)
        self.state = STARTING
        self.deadline_s = 0.0
        self._owner = owner
        self._loop = loop
        self._result_bytes = result_bytes
        self._runs = 0
        self._unread = False  # its last request never reached it
        self._opened = False
        self._partial: bytearray | None = None
        self._expected = 0
        self._outbox: memoryview | None = None
        self._reading = [False, False]

    # --- its life ---------------------------------------------------------------------------------------

    def open(self) -> tuple[int, int, int]:
        """Make the channels, and send the init ahead. Returns the sandbox's descriptors; the caller closes them."""
        with contextlib.ExitStack() as undo:
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(mine.close)
            undo.callback(theirs.close)
            out, their_out = _pipe(undo)
            err, their_err = _pipe(undo)
            undo.pop_all()
        mine.setblocking(False)
        self._sock, self._transmit, self._recv = mine, mine.send, mine.recv
        self._fds = (out, err)
        self.logs = Logs(out, err)
        self._opened = True
        self._loop.add_reader(mine.fileno(), self._readable)
        self._begin(self.launch.timeout_ms, self.launch.logs_bytes)
        description = {
            "name": self.launch.function,
            "code": self.launch.code,
            "binary": self.launch.binary,
            "main": self.launch.main or "main",
            "env": self.launch.env,
            "sdk": self.launch.sdk,
            "result_bytes": self._result_bytes,
        }
        body = msgspec.json.encode(description)
        self._write(REQUEST.pack(frames.INIT, len(body), 0) + body)
        return theirs.detach(), their_out, their_err

    def forked(self, pid: int, pidfd: int) -> None:
        self.process.forked(pid, pidfd, self._process_ended)
        if self.state == GONE:
            self.process.send(Signals.SIGKILL)

    def kill(self) -> None:
        """End it and all its children. Nothing is reported but, later, `ended`."""
        if self.state != GONE:
            self.state = GONE
            if self._opened:
                self._close()
        self.process.send(Signals.SIGKILL)

    def _close(self) -> None:
        loop = self._loop
        fd = self._sock.fileno()
        if self._outbox is not None:
            loop.remove_writer(fd)
        loop.remove_reader(fd)
        self._sock.close()
        for stream in (0, 1):
            if self._reading[stream]:
                loop.remove_reader(self._fds[stream])
        self.logs.close()

    def _process_ended(self) -> None:
        if self.state != GONE:
            self._readable()  # its last words, if there are any
            have = -1
            while self._partial is not None and len(self._partial) > have:
                have = len(self._partial)
                self._readable()
        if self.state != GONE:
            self._hang_up()
        self._owner.ended(self)

    # --- runs -------------------------------------------------------------------------------------------

    def run(self, request: RunRequest) -> bool:
        """False when the sandbox has gone and has not seen the request."""
        self._begin(request.timeout_ms, request.logs_bytes)
        self.state = RUNNING
        env = _encode_env(request.env)
        payload = request.payload
        what = frames.RUN_PICKLED if request.pickled else frames.RUN
        return self._write(REQUEST.pack(what, len(env), len(payload)) + env + payload)

    def _begin(self, timeout_ms: int, logs_bytes: int) -> None:
        self._timeout_ms = timeout_ms
        self._begun_s = now = time.perf_counter()
        self.deadline_s = now + timeout_ms / 1000
        self.logs.begin(logs_bytes)

    def tick(self, now_s: float, before_s: float) -> None:
        """From time to time while it is busy: its time limit, and its output if it was busy `before_s` already."""
        if now_s >= self.deadline_s:
            text = TIME_IN_INIT if self.state == STARTING else TIME
            self._lose(Status.DEVELOPER_ERROR, text.format(self._timeout_ms), timed_out=True)
        elif self._begun_s < before_s:
            for stream in (0, 1):
                if not self._reading[stream]:
                    self._reading[stream] = True
                    self._loop.add_reader(self._fds[stream], self._print, stream)

    def _print(self, stream: int) -> None:
        if not self.logs.read(stream):
            self._loop.remove_reader(self._fds[stream])
            self._reading[stream] = False

    def _write(self, data: bytes) -> bool:
        try:
            sent = self._transmit(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._unread = True
            return False
        if sent < len(data):
            self._outbox = memoryview(data)[sent:]
            self._loop.add_writer(self._sock.fileno(), self._writable)
        return True

    def _writable(self) -> None:
        if self._outbox is not None:
            try:
                self._outbox = self._outbox[self._transmit(self._outbox) :]
            except BlockingIOError:
                return
            except OSError:
                self._outbox = None  # the reader will learn why
        if not self._outbox:
            self._outbox = None
            self._loop.remove_writer(self._sock.fileno())

    # --- answers ----------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._recv(_RECV_BYTES)
        except BlockingIOError:
            return
        except OSError:
            # Reset, not closed: it died with the request unread.
            self._unread = True
            self._hang_up()
            return
        if not data:
            self._hang_up()
            return
        if self._partial is not None:
            self._partial += data
            if len(self._partial) < self._expected:
                return
            data = bytes(self._partial)
        if len(data) < REPLY.size:
            self._partial, self._expected = bytearray(data), REPLY.size
            return
        status, size, pickled = REPLY.unpack_from(data)
        expected = REPLY.size + size + pickled
        if len(data) < expected <= self._result_bytes + _SLACK_BYTES:
            self._partial, self._expected = bytearray(data), expected
            return
        self._partial = None
        if len(data) != expected or self.state not in (STARTING, RUNNING):
            self._lose(Status.DEVELOPER_ERROR, EXITED)  # it speaks out of turn: not the launcher's words
            return
        middle = REPLY.size + size
        self._answered(status, data[REPLY.size : middle], data[middle:] or None)

    def _answered(self, code: int, result: bytes, pickled: bytes | None) -> None:
        seconds = time.perf_counter() - self._begun_s
        status = _STATUSES.get(code, _DEVELOPER_ERROR)
        try:
            _check_json(result)
            if not result.isascii():
                result.decode()
        except (msgspec.DecodeError, UnicodeDecodeError):
            text = NOT_JSON.format(result[:1024].decode(errors="replace"))
            self._lose(Status.DEVELOPER_ERROR, text)
            return
        starting = self.state == STARTING
        if status is _INTERNAL_ERROR and not starting:
            status = _DEVELOPER_ERROR  # only a sandbox that could not be made may blame us
        if status is _DEVELOPER_ERROR or status is _INTERNAL_ERROR:
            self._lose(status, result)
            return
        self.state = IDLE
        logs = self.logs.finish()
        if self._reading[0] or self._reading[1]:
            self._stop_reading()
        if starting:
            self._owner.initialised(self, seconds, logs)
        else:
            self._runs += 1
            self._owner.finished(self, Outcome(status, result, seconds, logs, pickled))

    def _stop_reading(self) -> None:
        for stream in (0, 1):
            if self._reading[stream]:
                self._loop.remove_reader(self._fds[stream])
                self._reading[stream] = False

    def _hang_up(self) -> None:
        """It closed the channel: it has ended, or is about to."""
        # One that never served a run is not tried again elsewhere: it may well die each time.
        if self.state == RUNNING and self._unread and self._runs:
            self.kill()
            self._owner.refused(self)
        elif self.process.ran_out_of_memory():
            self._lose(Status.DEVELOPER_ERROR, OUT_OF_MEMORY)
        else:
            self._lose(Status.DEVELOPER_ERROR, EXITED_IN_INIT if self.state == STARTING else EXITED)

    def not_begun(self) -> None:
        """Its request could not be sent."""
        if self.state == RUNNING:
            self._hang_up()

    def never_forked(self, status: Status, text: str) -> None:
        """Its zygote could not, or died before it told."""
        if self.state != GONE:
            self._lose(status, text)
        self._owner.ended(self)

    def fail(self, status: Status, text: str) -> None:
        """It could not even be forked."""
        self._lose(status, text)

    def _lose(self, status: Status, result: str | bytes, *, timed_out: bool = False) -> None:
        busy = self._opened and self.state != IDLE
        seconds = time.perf_counter() - self._begun_s if busy else 0.0
        logs = self.logs.finish(failed=True) if self._opened else ()
        self.kill()
        body = result if isinstance(result, bytes) else error(result)
        self._owner.lost(self, Outcome(status, body, seconds, logs, timed_out=timed_out))
