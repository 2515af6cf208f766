"""One sandbox as the server sees it: its socket, its output, its process. Plain callbacks, no task a call."""

import math
import time
from collections.abc import Callable

import msgspec

from aliquot.core.units import MIB
from aliquot.live.bodies.json_check import CheckResult
from aliquot.live.bodies.large import LARGE_BODY_BYTES
from aliquot.live.node.base import BufferHandle, Launch, NestedRun, Outcome, OutputListener, RunRequest, Status
from aliquot.live.node.cell import Cell, EventLoop
from aliquot.live.node.control_channel import SandboxChannel
from aliquot.live.node.logs import Logs
from aliquot.live.node.messages import LargeReply, description_of, run_more
from aliquot.live.node.shared_buffers import SharedBufferError
from aliquot.live.node.states import (
    CHECKING,
    EXITED,
    EXITED_IN_INIT,
    GONE,
    IDLE,
    NOT_JSON,
    NOTHING_RUNS,
    OUT_OF_MEMORY,
    RUNNING,
    STARTING,
    TIME,
    TIME_IN_INIT,
    SandboxListener,
    error,
)
from aliquot.runtime import frames
from aliquot.runtime.frames import REPLY, REQUEST

_RECV_BYTES = 65536
_SLACK_BYTES = MIB  # what a launcher may send beyond the result: the JSON of an error

_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_encode_env = msgspec.json.Encoder().encode
_STATUSES = {int(status): status for status in Status}
_DEVELOPER_ERROR, _INTERNAL_ERROR = Status.DEVELOPER_ERROR, Status.INTERNAL_ERROR


class LocalSandbox:
    __slots__ = (
        "_begun_s", "_expected", "_fds", "_large", "_loop", "_outbox", "_outer", "_owner", "_partial", "_printed",
        "_reading", "_recv", "_result_bytes", "_runs", "_steps", "_timeout_ms", "_transmit", "_unread", "cell",
        "deadline_s", "launch", "logs", "number", "side", "state",
    )  # fmt: skip

    def __init__(self, number: int, launch: Launch, owner: SandboxListener, loop: EventLoop, result_bytes: int) -> None:
        self.number = number
        self.launch = launch
        self.cell: Cell | None = None  # until it has moved in
        self.state = STARTING
        self.deadline_s = 0.0
        self._owner = owner
        self._loop = loop
        self._result_bytes = result_bytes
        self._runs = 0
        self._unread = False  # its last request never reached it
        self._partial: bytearray | None = None
        self._printed = True  # whether the last reply said that its output is in the pipes
        self._expected = 0
        self._large: LargeReply | None = None  # a reply that is not to be copied
        self._outbox: list[memoryview] = []
        self._reading = [False, False]
        self.side: SandboxChannel | None = None
        self._steps = 0  # of a chain, that come after the one that runs
        # The activations that wait for one that they called: their output, deadline, time limit and beginning.
        self._outer: list[tuple[Logs, float, int, float]] = []

    # --- its life ---------------------------------------------------------------------------------------

    def move_in(
        self, cell: Cell, command: list[str] | None, data_bytes: int | None, side: SandboxChannel | None = None
    ) -> None:
        """Make the cell this function's: send the init. The command, if any, is what runs functions of its kind."""
        launch = self.launch
        self.cell = cell
        cell.tenant = self
        self._transmit, self._recv = cell.sock.send, cell.sock.recv
        self._fds = (cell.out, cell.err)
        self.logs = Logs(cell.out, cell.err)
        self._loop.add_reader(cell.sock.fileno(), self._readable)
        self._begin(launch.timeout_ms, launch.logs_bytes)
        body = description_of(launch, self._result_bytes, command, data_bytes, side)
        init = REQUEST.pack(frames.INIT, 0, len(body), 0) + body
        self.side = side
        self._write(init, side.introduce(cell.sock) if side is not None else None)

    def kill(self) -> None:
        """End it and all its children. Nothing is reported any more."""
        if self.state != GONE:
            self.state = GONE
            if self.cell is not None:
                self._leave(self.cell)

    def _leave(self, cell: Cell) -> None:
        loop = self._loop
        fd = cell.sock.fileno()
        if self._outbox:
            self._outbox.clear()
            loop.remove_writer(fd)
        loop.remove_reader(fd)
        self._stop_reading()
        if self.side is not None:
            self.side.close()
        cell.close()
        cell.kill()

    def process_ended(self) -> None:
        if self.state != GONE:
            self._readable()  # its last words, if there are any
            have = -1
            while self.state not in (GONE, CHECKING) and self._arrived > have:
                have = self._arrived
                self._readable()
        if self.state == CHECKING:
            self._unread = True  # for later: it answered before it died
        elif self.state != GONE:
            self._hang_up()

    @property
    def _arrived(self) -> int:
        """Of a reply that is not whole."""
        if self._large is not None:
            return self._large.have
        return len(self._partial) if self._partial is not None else -1

    # --- runs -------------------------------------------------------------------------------------------

    def run(self, request: RunRequest) -> bool:
        """False when the sandbox has gone and has not seen the request."""
        self._begin(request.timeout_ms, request.logs_bytes, request.listener)
        self.state = RUNNING
        payload, buffer = request.payload, request.shared_buffer
        number = self.side.buffers.put(buffer) if buffer is not None and self.side is not None else 0
        if request.steps or request.handed or request.hand_on:
            what, env = frames.RUN_GROUP if request.steps else frames.RUN_HANDED, run_more(request)
            self._steps = max(0, len(request.steps) - 1)
        else:
            env = _encode_env(request.env)
            what = (frames.RUN_SHARED if request.share else frames.RUN_PICKLED) if request.pickled else frames.RUN
        head = REQUEST.pack(what, number, len(env), len(payload)) + env
        if type(payload) is bytes:
            return self._write(head + payload)
        return self._write(head, large=payload)

    def _begin(self, timeout_ms: int, logs_bytes: int, listener: OutputListener | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._begun_s = now = time.perf_counter()
        self.deadline_s = now + timeout_ms / 1000
        self.logs.begin(logs_bytes, listener)

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

    def _write(
        self, data: bytes, transmit: Callable[[bytes], int] | None = None, large: bytes | memoryview = b""
    ) -> bool:
        try:
            sent = (transmit or self._transmit)(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._unread = True
            return False
        if (sent < len(data) or large) and self.cell is not None:
            self._outbox = [part for part in (memoryview(data)[sent:], memoryview(large)) if part]
            self._loop.add_writer(self.cell.sock.fileno(), self._writable)
        return True

    def _writable(self) -> None:
        outbox = self._outbox
        try:
            while outbox:
                outbox[0] = outbox[0][self._transmit(outbox[0]) :]
                if outbox[0]:
                    return
                del outbox[0]
        except BlockingIOError:
            return
        except OSError:
            outbox.clear()  # the reader will learn why
        if self.cell is not None:
            self._loop.remove_writer(self.cell.sock.fileno())

    # --- answers ----------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._large is not None:
            self._receive_large(self._large)
            return
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
        status, self._printed, buffer_number, size, pickled = REPLY.unpack_from(data)
        expected = REPLY.size + size + pickled
        if len(data) < expected <= self._result_bytes + _SLACK_BYTES:
            large = expected > LARGE_BODY_BYTES and self.state == RUNNING
            self._large = LargeReply(status, buffer_number, size, pickled, data) if large else None
            self._partial, self._expected = None if large else bytearray(data), expected
            return
        self._partial = None
        if len(data) != expected or self.state not in (STARTING, RUNNING) or self._outer:
            self._lose(Status.DEVELOPER_ERROR, EXITED)  # it speaks out of turn: not the launcher's words
            return
        middle = REPLY.size + size
        self._answered(status, data[REPLY.size : middle], data[middle:] or None, buffer_number)

    def _receive_large(self, large: LargeReply) -> None:
        try:
            got = self.cell.sock.recv_into(large.room) if self.cell is not None else 0
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if not got:
            self._large = None
            self._hang_up()
            return
        large.have += got
        if large.have < len(large.whole):
            return
        self._large = None
        seconds = time.perf_counter() - self._begun_s
        result = large.result
        if len(result) <= LARGE_BODY_BYTES:
            self._answered(large.status, bytes(result), large.pickled, large.buffer_number)
            return
        # Its run is over; nothing it does until it has been judged counts.
        self.state, self.deadline_s = CHECKING, math.inf
        if self.cell is not None:
            self._loop.remove_reader(self.cell.sock.fileno())
        self._owner.check_json(result, lambda checked: self._json_checked(large, seconds, checked))

    def _json_checked(self, large: LargeReply, seconds: float, checked: CheckResult) -> None:
        if self.state != CHECKING or self.cell is None:
            return
        self.state = RUNNING
        self._loop.add_reader(self.cell.sock.fileno(), self._readable)
        died, self._unread = self._unread, False
        if checked.why is not None:
            self._lose(Status.DEVELOPER_ERROR, NOT_JSON.format(bytes(large.result[:1024]).decode(errors="replace")))
            return
        self._settle(large.status, large.result, large.pickled, seconds, large.buffer_number)
        if died and self.state == IDLE:
            self._hang_up()

    def _answered(self, code: int, result: bytes, pickled: bytes | memoryview | None, buffer_number: int) -> None:
        seconds = time.perf_counter() - self._begun_s
        try:
            _check_json(result)
            if not result.isascii():
                result.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            text = NOT_JSON.format(result[:1024].decode(errors="replace"))
            self._lose(Status.DEVELOPER_ERROR, text)
            return
        self._settle(code, result, pickled, seconds, buffer_number)

    def _settle(
        self, code: int, result: bytes | memoryview, pickled: bytes | memoryview | None, seconds: float, number: int
    ) -> None:
        status = _STATUSES.get(code, _DEVELOPER_ERROR)
        starting = self.state == STARTING
        if status is _INTERNAL_ERROR and not starting:
            status = _DEVELOPER_ERROR  # only a sandbox that could not be made may blame us
        if status is _DEVELOPER_ERROR or status is _INTERNAL_ERROR:
            self._lose(status, bytes(result))
            return
        shared_buffer: BufferHandle | None = None
        if number:
            try:
                shared_buffer = self.side.buffers.hand_on(number, pickled or b"") if self.side is not None else None
            except (SharedBufferError, ValueError):
                self._lose(Status.DEVELOPER_ERROR, EXITED)  # not the launcher's words
                return
        self.state = IDLE
        logs = self.logs.finish(printed=self._printed)
        if self._reading[0] or self._reading[1]:
            self._stop_reading()
        if starting:
            self._owner.initialised(self, seconds, logs)
        else:
            self._runs += 1
            self._owner.finished(self, Outcome(status, result, seconds, logs, pickled, shared_buffer=shared_buffer))

    # --- activations inside a run -----------------------------------------------------------------------

    def begin_inside(self, function: str, *, printed: bool) -> NestedRun | str:
        """What runs waits, and another function's activation begins."""
        if self.state != RUNNING:
            return NOTHING_RUNS
        inner = self._owner.began_inside(self, function)
        if isinstance(inner, NestedRun):
            self.logs.pause(printed=printed)
            self._outer.append((self.logs, self.deadline_s, self._timeout_ms, self._begun_s))
            latest = self.deadline_s
            self.logs = Logs(*self._fds)
            self._begin(inner.timeout_ms, inner.logs_bytes, inner.listener)
            self.deadline_s = min(latest, self.deadline_s)
        return inner

    def end_inside(self, status: Status, result: bytes, *, printed: bool) -> NestedRun | None:
        """The innermost has ended: what waits for it goes on, or the chain's next activation begins."""
        if self.state != RUNNING or not (self._outer or self._steps):
            self.misbehaved()
            return None
        outcome = Outcome(status, result, time.perf_counter() - self._begun_s, self.logs.finish(printed=printed))
        if self._outer:
            self.logs, self.deadline_s, self._timeout_ms, self._begun_s = self._outer.pop()
            self._owner.ended_inside(self, outcome)
            return None
        self._steps -= 1
        following = self._owner.ended_inside(self, outcome)
        if following is not None:
            self._begin(following.timeout_ms, following.logs_bytes, following.listener)
        return following

    @property
    def waiting(self) -> tuple[tuple[str, ...], ...]:
        """What those have printed that wait for one that they called, innermost first."""
        return tuple(outer[0].lines for outer in reversed(self._outer))

    def misbehaved(self) -> None:
        if self.state in (STARTING, RUNNING):
            self._lose(Status.DEVELOPER_ERROR, EXITED)

    def _stop_reading(self) -> None:
        for stream in (0, 1):
            if self._reading[stream]:
                self._loop.remove_reader(self._fds[stream])
                self._reading[stream] = False

    def _hang_up(self) -> None:
        """It closed the channel: it has ended, or is about to."""
        # Whoever died before it read what was asked may be replaced: an empty cell, or a sandbox that died idle.
        # One that never served a run is not tried again elsewhere: it may well die each time.
        if self._unread and (self.state == STARTING or (self.state == RUNNING and self._runs)):
            self.kill()
            self._owner.refused(self)
        elif self.cell is not None and self.cell.process.ran_out_of_memory():
            self._lose(Status.DEVELOPER_ERROR, OUT_OF_MEMORY)
        else:
            self._lose(Status.DEVELOPER_ERROR, EXITED_IN_INIT if self.state == STARTING else EXITED)

    def not_begun(self) -> None:
        """Its request could not be sent."""
        if self.state == RUNNING:
            self._hang_up()

    def never_forked(self, status: Status, why: str) -> None:
        if self.state != GONE:
            self._lose(status, why)

    def fail(self, status: Status, text: str) -> None:
        """It could not even move in."""
        self._lose(status, text)

    def _lose(self, status: Status, result: str | bytes, *, timed_out: bool = False) -> None:
        busy = self.cell is not None and self.state != IDLE
        seconds = time.perf_counter() - self._begun_s if busy else 0.0
        logs = self.logs.finish(failed=True) if self.cell is not None else ()
        self.kill()
        body = result if isinstance(result, bytes) else error(result)
        self._owner.lost(self, Outcome(status, body, seconds, logs, timed_out=timed_out, outer=self.waiting))
