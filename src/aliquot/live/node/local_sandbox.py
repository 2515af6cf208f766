"""One sandbox of the local node: its runs, time limits and output, from the launch to its end.

Everything here is a plain callback on the event loop. A task per call would cost more than the rest of a warm call.
"""

import asyncio
import math
import time

from aliquot.live.bodies.json_check import CheckResult, is_json
from aliquot.live.node import states
from aliquot.live.node.base import BufferHandle, Launch, NestedRun, Outcome, OutputListener, RunRequest, Status
from aliquot.live.node.cell import Cell
from aliquot.live.node.control_channel import SandboxChannel
from aliquot.live.node.handed_runs import HandedRuns
from aliquot.live.node.launcher_connection import InitRequest, LargeReply, LauncherConnection, make_init, run_head
from aliquot.live.node.logs import Logs
from aliquot.live.node.output_readers import OutputReaders
from aliquot.live.node.reply_memory import ReplyMemory
from aliquot.live.node.run_failures import describe_end, exit_text
from aliquot.live.node.shared_buffers import SandboxBuffers, SharedBufferError
from aliquot.live.node.states import CHECKING, GONE, IDLE, RUNNING, STARTING, SandboxListener, error, open_or_empty
from aliquot.runtime import frames

_STATUSES = {int(status): status for status in Status}
_DEVELOPER_ERROR, _INTERNAL_ERROR = Status.DEVELOPER_ERROR, Status.INTERNAL_ERROR
_MAX_LATE_READS = 8  # more than a socket holds; a function that goes on sending must not keep the server reading


class LocalSandbox:
    __slots__ = (
        "_begun_s", "_connection", "_died", "_fds", "_handed", "_init", "_listener", "_loop", "_outer", "_readers",
        "_result_bytes", "_runs", "_steps", "_ticked_runs", "_timeout_ms", "_unread", "cell", "channel", "deadline_s",
        "launch", "logs", "moving", "number", "start_over", "state",
    )  # fmt: skip
    progress_fd: int | None = None  # of a page on which the sandbox tells how far a run is, if its kind does

    def __init__(
        self,
        number: int,
        launch: Launch,
        cell: Cell,
        buffers: SandboxBuffers | None,
        listener: SandboxListener,
        loop: asyncio.AbstractEventLoop,
        result_bytes: int,
        reply_memory: ReplyMemory,
        handed: HandedRuns | None = None,
    ) -> None:
        """A sandbox gets a control channel if it has shared buffers. Runs are handed ahead only if it has `handed`."""
        self.number = number
        self.launch = launch
        self.cell = cell
        self.state = STARTING
        self.deadline_s = 0.0
        self.logs = Logs(cell.out, cell.err)
        self.start_over: asyncio.Future[None] = loop.create_future()  # it is initialised, or it has ended
        self._listener = listener
        self._loop = loop
        self._result_bytes = result_bytes
        self._fds = (cell.out, cell.err)
        self._readers = OutputReaders(self._fds, lambda stream: self.logs.read(stream), loop)  # noqa: PLW0108
        self._init: InitRequest | None = None  # until it is sent
        self._begun_s = 0.0
        self._timeout_ms = 0
        self._runs = 0
        self._ticked_runs = -1  # the number of runs at the last tick at which it was idle
        self.moving = False  # its memory is being moved to or from a device, so it must not be frozen
        self._unread = False  # its launcher never read the last request
        self._died = False  # while its result was checked
        self._steps = 0  # how many steps of a chain follow the one that runs
        self._outer: list[tuple[Logs, float, int, float]] = []  # output, deadline, limit and beginning of waiting ones
        self._handed = handed
        self.channel = SandboxChannel(self, buffers, loop) if buffers is not None else None
        self._connection = LauncherConnection(cell, self, loop, launch, result_bytes, reply_memory)
        cell.assign(self)

    # --- start and end ----------------------------------------------------------------------------------

    def start(
        self, command: list[str] | None, data_bytes: int | None, cpu_group: int | None, *, waited_s: float
    ) -> None:
        """Send the init as soon as there is a network.

        `command` runs functions of other kinds than Python, with `data_bytes` as RLIMIT_DATA. It enters its CPU
        group through `cpu_group`, which is closed here. The time limit includes `waited_s`, the wait for imports.
        """
        launch, channel = self.launch, self.channel
        token = channel.buffers.token if channel is not None else None
        self._begin(launch.timeout_ms, launch.logs_bytes)
        self.deadline_s -= waited_s
        tokens = self._handed.descriptor() if self._handed is not None else None
        end = channel.take_sandbox_end() if channel is not None else None
        fds = (cpu_group, tokens, self.progress_fd, *map(open_or_empty, launch.constants), end)
        self._init = make_init(launch, self._result_bytes, command, data_bytes, token, fds)
        self._unread = True
        self.cell.on_network(self._send_init)

    def _send_init(self) -> None:
        if self.state == STARTING and self._init is not None:
            self._unread = not self._init.send(self._connection)

    def _explain(self, body: bytes) -> bytes:
        """Return the error of a run that was lost. Kinds with a page of progress add where it was."""
        return body

    def kill(self) -> None:
        """End the sandbox with all its children. Nothing is reported any more."""
        if self.state == GONE:
            return
        idle, self.state = self.state == IDLE, GONE
        self._connection.close()
        self._readers.stop()
        if self.channel is not None:
            self.channel.close()
        if self._handed is not None:
            self._handed.close()
        if self._init is not None:
            self._init.close()
        self.cell.end(exits=idle and self.launch.exit)
        if not self.start_over.done():
            self.start_over.set_result(None)

    def fail(self, status: Status, text: str) -> None:
        """Report the sandbox as lost, unless it has gone already."""
        if self.state != GONE:
            self._lose(status, text)

    def _lose(self, status: Status, result: str | bytes, *, timed_out: bool = False) -> None:
        seconds = time.perf_counter() - self._begun_s if self.state != IDLE else 0.0
        logs = self.logs.finish(failed=True)
        body = result if isinstance(result, bytes) else error(result)
        why = describe_end(self.cell.process, body, self.launch.memory_bytes, self._timeout_ms if timed_out else None)
        self.kill()
        ended = Outcome(status, self._explain(body), seconds, logs, None, timed_out, outer=self.waiting, failure=why)
        self._listener.lost(self, ended)

    # --- events of the cell and of the connection -------------------------------------------------------

    def never_forked(self, status: Status, why: str) -> None:
        if self.state == STARTING and self.cell.zygote_crashed():
            self.hung_up(unread=True)
        else:
            self.fail(status, why)

    def process_ended(self) -> None:
        """Read what the launcher sent before it ended, then report the end."""
        self._read_replies(None)
        if self.state == CHECKING:
            self._died = True
        elif self.state != GONE:
            self.hung_up(unread=False)

    def _read_replies(self, max_reads: int | None) -> None:
        """Read until all runs have replied, or nothing more has arrived."""
        before, reads = (-2, -1), 0
        while self.state not in (GONE, CHECKING, IDLE) and reads != max_reads:
            if (progress := (self._connection.received, self._runs)) == before:
                break
            before, reads = progress, reads + 1
            self._connection.read()

    def _read_steps(self) -> None:
        """Read the ends of steps, which come on another socket than replies, and before them."""
        if self.channel is not None:
            self.channel.read_all()

    def hung_up(self, *, unread: bool) -> None:
        """Report the end of a launcher that has closed its connection.

        A launcher that ended before it read the request is replaced: an empty cell, or a sandbox that ended while idle.
        So is one that ended with its zygote during its init. One that never finished a run is not: the next may end so.
        """
        self._read_steps()
        self._unread = self._unread or unread or (self.state == STARTING and self.cell.zygote_crashed())
        if self._handed is not None and self._handed.has_not_begun():
            self._unread = True
        if not self._unread or not (self.state == STARTING or (self.state == RUNNING and self._runs)):
            self._lose(_DEVELOPER_ERROR, exit_text(self.cell.process, starting=self.state == STARTING))
            return
        self.kill()
        self._listener.refused(self)

    def malformed_reply(self) -> None:
        """End a sandbox that has sent what no launcher sends: the function has written to its channels."""
        self._lose(_DEVELOPER_ERROR, states.EXITED)

    def misbehaved(self) -> None:
        """End a busy sandbox that has sent what no launcher sends over its control channel."""
        if self.state in (STARTING, RUNNING):
            self._lose(_DEVELOPER_ERROR, states.EXITED)

    # --- runs -------------------------------------------------------------------------------------------

    def run(self, request: RunRequest) -> bool:
        """Send a run. Return False when the launcher has gone and has not seen the request."""
        if self.cell.process.frozen:
            self.cell.process.thaw()
        self._begin(request.timeout_ms, request.logs_bytes, request.listener)
        self.state = RUNNING
        if self._handed is not None:
            self._handed.began_ahead = False
        payload, buffers = request.payload, None
        if self.channel is not None:
            buffers = self.channel.buffers
            buffers.begin_run()
        if request.steps:
            self._steps = len(request.steps) - 1
        head = run_head(request, buffers)
        small = type(payload) is bytes
        sent = self._connection.send(head + payload) if small else self._connection.send(head, payload)
        self._unread = not sent
        return sent

    def run_next(self, request: RunRequest) -> bool:
        """Hand a run ahead. Return False if this sandbox does not take it now."""
        if self._handed is None or self.state != RUNNING or self._readers.active:
            return False  # while the output of a long run is read, no other may print
        return self._handed.add(request, self._connection, self._loop)

    def take_back(self) -> None:
        """Take back the runs that were handed ahead and have not begun, and report their number."""
        self._listener.taken_back(self, self._handed.revoke() if self._handed is not None else 0)

    def run_not_sent(self) -> None:
        """Report the end of a launcher that had gone before the run was sent."""
        if self.state == RUNNING:
            self.hung_up(unread=True)

    def _begin(self, timeout_ms: int, logs_bytes: int, listener: OutputListener | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._begun_s = now = time.perf_counter()
        self.deadline_s = now + timeout_ms / 1000
        self.logs.begin(logs_bytes, listener)

    def tick(self, now_s: float, before_s: float) -> bool:
        """Look after the sandbox, and return False when that is not needed before its next run.

        Enforce the time limit, read the output of a run that was going on at `before_s`, and freeze one that was idle.
        """
        if self.state == IDLE:
            if self._ticked_runs != self._runs or self.moving:
                self._ticked_runs = self._runs
                return True
            self.cell.process.freeze()
            return False
        if now_s >= self.deadline_s and self._is_late(now_s):
            text = (states.TIME_IN_INIT if self.state == STARTING else states.TIME).format(self._timeout_ms)
            if (lacking := self._connection.lacking_memory) is not None:
                text = f"{text} Its result could not be received: {lacking}."
            self._lose(_DEVELOPER_ERROR, text, timed_out=True)
        elif self.state in (STARTING, RUNNING) and self._begun_s < before_s:
            if self._handed:
                self.take_back()
            self._readers.start()
        return self.state != GONE

    def _is_late(self, now_s: float) -> bool:
        """Return whether the time limit is exceeded, after reading what has come while the server stood still."""
        self._read_steps()
        if self._handed:
            self.take_back()
        self._read_replies(_MAX_LATE_READS)
        return self.state in (STARTING, RUNNING) and now_s >= self.deadline_s

    # --- replies ----------------------------------------------------------------------------------------

    def awaits_more(self) -> bool:
        return self._handed is not None and self._handed.awaited > 0

    def replied(
        self, status: int, result: bytes, pickled: bytes | memoryview | None, buffer_number: int, *, printed: bool
    ) -> None:
        """Check a reply of the launcher and settle the start or the run."""
        if status == frames.NOT_RUN and self._handed is not None:
            if not self._handed.answered_not_run():  # the function has taken a token itself
                self.hung_up(unread=self._handed.began_ahead)
            return
        self._read_steps()
        if self.state not in (STARTING, RUNNING) or self._outer:
            self.malformed_reply()
            return
        seconds = time.perf_counter() - self._begun_s
        if not is_json(result):
            self._lose(_DEVELOPER_ERROR, states.not_json(result))
            return
        self._settle(status, result, pickled, seconds, buffer_number, printed=printed)

    def replied_large(self, reply: LargeReply) -> None:
        """Have a large result checked by another process. The run is over, and the function cannot change it."""
        self._read_steps()
        if self.state != RUNNING or self._outer:
            self.malformed_reply()
            return
        seconds = time.perf_counter() - self._begun_s
        self.state, self.deadline_s = CHECKING, math.inf
        self._connection.pause()
        self._listener.check_json(self, reply.result, lambda checked: self._json_checked(reply, seconds, checked))

    def _json_checked(self, reply: LargeReply, seconds: float, checked: CheckResult) -> None:
        if self.state != CHECKING:
            return
        self.state = RUNNING
        self._connection.resume()
        if checked.why is not None:
            self._lose(_DEVELOPER_ERROR, states.not_json(reply.result))
            return
        self._settle(reply.status, reply.result, reply.pickled, seconds, reply.buffer_number, printed=reply.printed)
        if self._died and self.state == IDLE:
            self.hung_up(unread=False)

    def _settle(
        self,
        code: int,
        result: bytes | memoryview,
        pickled: bytes | memoryview | None,
        seconds: float,
        buffer_number: int,
        *,
        printed: bool,
    ) -> None:
        """Report the end of the start or of the run."""
        status = _STATUSES.get(code, _DEVELOPER_ERROR)
        starting = self.state == STARTING
        if status is _INTERNAL_ERROR and not starting:
            status = _DEVELOPER_ERROR  # only a start can fail by the platform's fault
        if status is _DEVELOPER_ERROR or status is _INTERNAL_ERROR:
            self._lose(status, bytes(result))
            return
        shared_buffer: BufferHandle | None = None
        inside_s = buffer_number * frames.RUN_TIME_UNIT_S if self._handed is not None else 0.0
        if buffer_number and self.channel is not None:
            try:
                shared_buffer = self.channel.buffers.hand_on(buffer_number, pickled or b"")
            except (SharedBufferError, ValueError):
                self.malformed_reply()
                return
        self.state = IDLE
        if self.channel is not None:
            self.channel.buffers.end_run()
        logs = self.logs.finish(printed=printed)
        if self._readers.active:
            self._readers.stop()
        if starting:
            self._listener.initialised(self, seconds, logs)
            if not self.start_over.done():
                self.start_over.set_result(None)
        else:
            self._runs += 1
            if self._handed:
                self._begin_next(self._handed, printed=printed)
            outcome = Outcome(status, result, seconds, logs, pickled, shared_buffer=shared_buffer, inside_s=inside_s)
            self._listener.finished(self, outcome)

    def _begin_next(self, handed: HandedRuns, *, printed: bool) -> None:
        """Begin the next run that was handed ahead. The launcher begins none after a run that has printed."""
        if printed:
            self._listener.taken_back(self, handed.give_up())
        following = handed.begin_next()
        if following is not None:
            self.state = RUNNING
            self._begin(following.timeout_ms, following.logs_bytes, following.listener)

    # --- activations inside a run -----------------------------------------------------------------------

    def begin_inside(self, function: str, *, printed: bool) -> NestedRun | str:
        """Begin the activation of a function that the running one calls, or return why it cannot begin."""
        if self.state != RUNNING:
            return states.NOTHING_RUNS
        inner = self._listener.began_inside(self, function)
        if isinstance(inner, NestedRun):
            self.logs.pause(printed=printed)
            self._outer.append((self.logs, self.deadline_s, self._timeout_ms, self._begun_s))
            latest = self.deadline_s
            self.logs = Logs(*self._fds)
            self._begin(inner.timeout_ms, inner.logs_bytes, inner.listener)
            self.deadline_s = min(latest, self.deadline_s)
        return inner

    def end_inside(self, status: Status, result: bytes, *, printed: bool) -> NestedRun | None:
        """End the innermost activation. Its caller continues, or the chain's next activation begins."""
        if self.state != RUNNING or not (self._outer or self._steps):
            self.misbehaved()
            return None
        outcome = Outcome(status, result, time.perf_counter() - self._begun_s, self.logs.finish(printed=printed))
        if self._outer:
            self.logs, self.deadline_s, self._timeout_ms, self._begun_s = self._outer.pop()
            self._listener.ended_inside(self, outcome)
            return None
        self._steps -= 1
        following = self._listener.ended_inside(self, outcome)
        if following is not None:
            self._begin(following.timeout_ms, following.logs_bytes, following.listener)
        return following

    @property
    def waiting(self) -> tuple[tuple[str, ...], ...]:
        """The output of the activations that wait for one that they called, innermost first."""
        return tuple(outer[0].lines for outer in reversed(self._outer))
