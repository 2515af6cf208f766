"""A sandbox that serves a kernel graph. A shared page tells the server which kernel runs, even after its death."""

import json
import mmap
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from aliquot.live.node.base import KernelFiles, RunRequest
from aliquot.live.node.executor_seats import SeatCell
from aliquot.live.node.executors import Executor
from aliquot.live.node.launcher_connection import LargeReply
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.states import CHECKING, GONE, IDLE, RUNNING, STARTING, WAITING, open_or_empty
from aliquot.runtime import frames
from aliquot.runtime.frames import REQUEST
from aliquot.runtime.progress import PROGRESS

MAX_ITERATION = 10**6


class _Kernel(Struct):
    entry: str = ""


class _Graph(Struct):
    kernels: list[_Kernel] = []


class GraphSandbox(LocalSandbox):
    """A resident graph: a sandbox with a page of progress, in an executor that runs one graph at a time.

    A graph that is tried out has a process of its own.
    """

    __slots__ = ("_moved", "_page", "_request", "awaits_answer", "progress_fd")

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of `LocalSandbox`
        super().__init__(*args, **kwargs)
        self.progress_fd = os.memfd_create("progress", os.MFD_CLOEXEC)  # the init closes it
        os.ftruncate(self.progress_fd, mmap.PAGESIZE)
        self._page = mmap.mmap(self.progress_fd, mmap.PAGESIZE, prot=mmap.PROT_READ)
        self.awaits_answer = False
        self._request: RunRequest | None = None  # waits for its turn
        self._moved: Callable[[bool], None] | None = None  # called when the memory has been moved

    @property
    def executor(self) -> Executor | None:
        return self.cell.executor if isinstance(self.cell, SeatCell) else None

    @property
    def is_busy(self) -> bool:
        return self.state not in (IDLE, GONE) or self._moved is not None

    def _send_init(self) -> None:
        self.awaits_answer = True
        super()._send_init()
        if self.executor is not None:
            self.executor.slice_changed()

    # --- runs -------------------------------------------------------------------------------------------

    def run(self, request: RunRequest) -> bool:
        """Send a run, or keep it until the run of another graph has ended. Its time limit counts from its turn."""
        if self.executor is None:
            self.awaits_answer = True
            return super().run(request)
        if not self.executor.take_turn(self):
            self.state, self._request = WAITING, request
            return True
        self.cell.process.thaw()
        self._begin(request.timeout_ms, request.logs_bytes, request.listener)
        self.state, self.awaits_answer = RUNNING, True
        head, fds = graph_run(request)
        for output in request.kernel.outputs if request.kernel is not None else ():
            if output.memory.token:
                self.executor.writes.append(output.memory)
        try:
            sent = self._connection.send(head, request.payload, fds)
        finally:
            for fd in fds:
                os.close(fd)
        self._unread = not sent
        return sent

    def turn(self) -> None:
        request, self._request = self._request, None
        if request is None or self.state != WAITING:
            return
        self.state = IDLE
        if not self.run(request):
            self._loop.call_soon(self.run_not_sent)

    def replied(
        self, status: int, result: bytes, pickled: bytes | memoryview | None, buffer_number: int, *, printed: bool
    ) -> None:
        self.awaits_answer = False
        if self._moved is not None and self.state == IDLE:
            moved, self._moved = self._moved, None
            moved(status == frames.SUCCESS)
            return
        starting, began_s = self.state == STARTING, self._begun_s
        super().replied(status, result, pickled, buffer_number, printed=printed)
        if starting and self.state == IDLE and self.executor is not None:
            self.executor.counts.loads += 1
            self.executor.counts.load_s += time.perf_counter() - began_s
        self._end_turn()

    def replied_large(self, reply: LargeReply) -> None:
        self.awaits_answer = False
        super().replied_large(reply)
        self._end_turn()

    def _end_turn(self) -> None:
        if self.executor is not None and self.state in (IDLE, CHECKING):
            self.executor.end_turn(self)

    def move(self, *, load: bool, then: Callable[[bool], None]) -> bool:
        """Have the executor load or unload what stays on the device. Return False if the graph has no executor."""
        if self.executor is None or self.state != IDLE or self._moved is not None:
            return False
        self._moved, self.awaits_answer = then, True
        self.cell.process.thaw()
        self._connection.send(REQUEST.pack(frames.LOAD if load else frames.UNLOAD, 0, 2, 0) + b"{}")
        return True

    # --- the end ----------------------------------------------------------------------------------------

    def hung_up(self, *, unread: bool) -> None:
        """Report the end of the process. A call that was not to blame for it runs again."""
        executor = self.executor
        if executor is not None:
            executor.blame(None)
            executor.close()
            if self.state != IDLE and executor.culprit is not self:
                executor.counts.run_again += 1
                self.kill()
                self._listener.refused(self)
                return
        super().hung_up(unread=unread)

    def kill(self) -> None:
        moved, self._moved = self._moved, None
        super().kill()
        if moved is not None:
            moved(False)

    def _explain(self, body: bytes) -> bytes:
        where = described_place(self.launch.code, self._page[: PROGRESS.size])
        if not where:
            return body
        found = json.loads(body)
        return json.dumps({"error": f"{found['error']} It was in {where}."}, ensure_ascii=False).encode()


def graph_run(request: RunRequest) -> tuple[bytes, list[int]]:
    """Return the frame of a run up to its payload, and the descriptors of its objects, which the caller closes."""
    files = request.kernel or KernelFiles()
    fds: list[int] = []
    for one in files.inputs:
        fds += [open_or_empty((one.key, one.path))] if one.memory is None else one.memory.share()
    for output in files.outputs:
        fds += output.memory.give()
    about = {
        "inputs": [(one.key, one.sha256, one.token) for one in files.inputs],
        "outputs": [(one.name, one.key, one.memory.token) for one in files.outputs],
    }
    first, kind = json.dumps(about).encode(), frames.RUN_PICKLED if request.pickled else frames.RUN
    return REQUEST.pack(kind, 0, len(first), len(request.payload)) + first, fds


def described_place(code: str, page: bytes) -> str:
    """Return the kernel and the iteration that a page tells, or nothing if none ran. The sandbox may write anything."""
    number, iteration = PROGRESS.unpack(page)
    try:
        kernels = msgspec.json.decode(code, type=_Graph).kernels
    except msgspec.DecodeError:
        return ""
    if not 1 <= number <= len(kernels) or iteration > MAX_ITERATION:
        return ""
    return f"kernel {number - 1} ({kernels[number - 1].entry}), iteration {iteration}"
