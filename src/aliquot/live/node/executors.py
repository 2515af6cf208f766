"""Executors: one process for all kernel graphs that a tenant has on a device.

Each resident graph is a sandbox of the core. It has a socket and pipes of its own into the process, and is served as if
the process were its own. One graph runs at a time. An executor ends a while after its last graph. If its process ends,
the run that was going on is to blame, and the calls of the other graphs run again.
"""

import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count

from msgspec import Struct
from msgspec.structs import asdict, replace

from aliquot.core.interfaces import Allotment
from aliquot.core.places import Place
from aliquot.live.device.drivers import Drivers
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.base import Launch, OutputBuffer, Status
from aliquot.live.node.cell import Cell, EventLoop
from aliquot.live.node.cells import CellPool
from aliquot.live.node.device_attachment import DeviceAttachment
from aliquot.live.node.executor_seats import SeatCell, SeatSandbox
from aliquot.live.node.launcher_connection import make_init
from aliquot.live.node.sandbox_resources import SandboxResources
from aliquot.live.node.states import GONE, IDLE
from aliquot.live.node.zygote_process import ZygoteProcess
from aliquot.runtime import frames

TRIAL = "trial"  # the entry point of a graph that is tried out, in a process of its own
FIRST_NUMBER = 1 << 50  # of executors, far above the numbers of sandboxes and of trials
LINGER_S = 10.0  # without a graph
WRITE_CHECK_S = 0.1  # while outputs are written, until the process may be frozen
LEAVE_TIMEOUT_S = 30.0  # for a graph that was told to leave; it may wait for the load of another
FREEZE_DELAY_S = 1.0  # after a graph was told to leave
_NO_CODE = {"code": "", "binary": False, "main": frames.EXECUTOR, "constants": ()}


class ExecutorCounts(Struct):
    """Counts since the server started, for metrics."""

    started: int = 0
    crashed: int = 0  # ended by a run or a start of one of its graphs
    loads: int = 0  # starts of graphs
    load_s: float = 0.0
    run_again: int = 0  # calls that were not to blame for the end of their executor


class Executor:
    """One process with its graphs. `closed` is called when it takes no graphs any more."""

    def __init__(
        self,
        number: int,
        launch: Launch,
        cell: Cell,
        drivers: Drivers,
        loop: EventLoop,
        closed: Callable[["Executor"], None],
        allotted: dict[int, Allotment],
        counts: ExecutorCounts,
    ) -> None:
        self.number = number
        self.launch = replace(launch, **_NO_CODE, device_bytes_per_s=drivers.bytes_per_s(launch.place))
        self.cell = cell
        self.state = IDLE
        self.culprit: SeatSandbox | None = None  # whose run or start has ended the process
        self.seats: dict[SeatCell, int] = {}  # with the host memory of each
        self.writes: list[OutputBuffer] = []  # outputs that stay on the device and may not be written yet
        self._leaving: set[SeatCell] = set()
        self._drivers = drivers
        self._loop = loop
        self._tell_closed = closed
        self._ready = False
        self._on_ready: list[Callable[[], None]] = []
        self._running: SeatSandbox | None = None
        self._waiting: deque[SeatSandbox] = deque()
        self._allotted = allotted
        self.counts = counts
        self._slice: Allotment | None = None
        self._compute: dict[int, float] = {}  # seconds by sandbox
        self._counted_s = 0.0
        self._last = 0  # the sandbox that ran last
        cell.process.sharing = self
        cell.assign(self)

    # --- start and end ----------------------------------------------------------------------------------

    def start(self, result_bytes: int, data_bytes: int | None, cpu_group: int | None) -> None:
        """Send the init as soon as the process has its network, and wait until it takes graphs."""
        init = make_init(self.launch, result_bytes, None, data_bytes, None, (cpu_group, None, None))

        def send() -> None:
            self._loop.add_reader(self.cell.sock.fileno(), self._receive)
            init.send_on(self.cell.sock)

        self.cell.on_ready(send)

    def _receive(self) -> None:
        try:
            data = self.cell.sock.recv(1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._loop.remove_reader(self.cell.sock.fileno())  # nothing else comes, and its end is told by the pidfd
        if not data:
            self.close()
            return
        self._ready, waiting = True, self._on_ready
        self._on_ready = []
        for then in waiting:
            then()

    def close(self) -> None:
        """Kill the process, and take no graphs any more. Those that it has learn of it when it has ended."""
        if self.state == GONE:
            return
        self.state = GONE
        self.counts.crashed += self.culprit is not None
        self._tell_closed(self)
        if not self.cell.has_ended:
            self._loop.remove_reader(self.cell.sock.fileno())
        self.cell.kill()

    def process_ended(self) -> None:
        self.blame(None)
        self.close()
        for seat in [*self.seats, *self._leaving]:
            if seat.sandbox is not None and seat in self.seats:
                seat.sandbox.process_ended()
            seat.left()
        self.seats.clear()
        self._leaving.clear()

    def never_forked(self, status: Status, why: str) -> None:
        self.close()
        for seat in list(self.seats):
            if seat.sandbox is not None:
                seat.sandbox.never_forked(status, why)
            seat.left()

    def blame(self, sandbox: SeatSandbox | None) -> None:
        """Note whose run or start ends the process: the given one, or the one that runs, or the oldest that starts."""
        if self.state == GONE or self.culprit is not None:
            return
        starting = (one for one in self.sandboxes if one.is_busy and one not in self._waiting)
        self.culprit = sandbox or self._running or next(starting, None)

    # --- graphs -----------------------------------------------------------------------------------------

    @property
    def sandboxes(self) -> list[SeatSandbox]:
        return [seat.sandbox for seat in self.seats if seat.sandbox is not None]

    @property
    def memory_bytes(self) -> int:
        return sum(self.seats.values())

    def connect(self, seat: SeatCell, then: Callable[[], None]) -> None:
        """Give the process its ends of a graph's channels, and call `then`, as soon as the process takes graphs."""
        if not self._ready:
            self._on_ready.append(lambda: self.connect(seat, then))
            return
        ends = seat.take_process_ends()
        try:
            if seat in self.seats:
                self.cell.process.thaw()
                with contextlib.suppress(OSError):  # it has ended, which its other channels tell
                    socket.send_fds(self.cell.sock, [b"g"], ends)
        finally:
            for fd in ends:
                os.close(fd)
        then()

    def leave(self, seat: SeatCell) -> None:
        """Let a graph go. One that has not answered its last request cannot be stopped alone."""
        if self.seats.pop(seat, None) is None:
            return
        self._leaving.add(seat)
        sandbox = seat.sandbox
        if sandbox is not None:
            self.end_turn(sandbox)
            if sandbox.awaits_answer:
                self.blame(sandbox)
                self.close()
        if self.state == GONE:
            return
        self.cell.process.thaw()  # it frees memory
        seat.close_gently(self._loop)
        self._loop.call_later(FREEZE_DELAY_S, self.cell.process.freeze)
        self._loop.call_later(LEAVE_TIMEOUT_S, self._end_if_leaving, seat)
        if not self.seats:
            self._loop.call_later(LINGER_S, self._end_if_unused, self._last)

    def _end_if_leaving(self, seat: SeatCell) -> None:
        """End a process that does not let a graph go: others wait for its memory."""
        if seat in self._leaving:
            self.close()

    def has_left(self, seat: SeatCell) -> None:
        self._leaving.discard(seat)

    def _end_if_unused(self, last: int) -> None:
        if self.seats or self._last != last:
            return
        self.writes = [memory for memory in self.writes if not memory.is_settled]
        if self.writes:
            self._loop.call_later(LINGER_S, self._end_if_unused, last)
        else:
            self.close()

    # --- turns ------------------------------------------------------------------------------------------

    def take_turn(self, sandbox: SeatSandbox) -> bool:
        """Return whether a graph may run now. Otherwise its `turn` is called when it may."""
        if self._running is not None and self._running is not sandbox:
            self._waiting.append(sandbox)
            return False
        self._running, self._last = sandbox, sandbox.number
        self.slice_changed()
        return True

    def end_turn(self, sandbox: SeatSandbox) -> None:
        """Note that a graph runs no longer, or wants to run no longer."""
        if sandbox in self._waiting:
            self._waiting.remove(sandbox)
        if self._running is not sandbox:
            return
        self._running = None
        if self._waiting and self.state != GONE:
            self._waiting.popleft().turn()

    def is_idle(self) -> bool:
        """Return whether the process may be frozen: no graph starts, runs or moves, and nothing is freed or written."""
        self.writes = [memory for memory in self.writes if not memory.is_settled]
        if self.writes and self.state != GONE:
            self._loop.call_later(WRITE_CHECK_S, self.cell.process.freeze)
            return False
        return self._ready and not self._leaving and not any(sandbox.is_busy for sandbox in self.sandboxes)

    # --- its part of the device -------------------------------------------------------------------------

    def slice_changed(self) -> None:
        """Give the process the slices of its graphs that are at work."""
        busy = [one.number for one in self.sandboxes if one.is_busy and one not in self._waiting]
        slices = [self._allotted[number] for number in busy if number in self._allotted]
        if not slices:
            return
        most = float(len(self.launch.place))
        total = Allotment(min(most, sum(one[0] for one in slices)), min(most, sum(one[1] for one in slices)))
        if total != self._slice:
            self._slice = total
            self._drivers.resize(self.number, *total)

    def usage_by_graph(self, used: DeviceUsage) -> Iterable[DeviceUsage]:
        """Divide what the process has used: compute to the graph that ran, memory equally."""
        sandboxes = self.sandboxes
        if not sandboxes:
            return
        spent, self._counted_s = used.compute_s - self._counted_s, used.compute_s
        ran = self._last or sandboxes[0].number
        self._compute[ran] = self._compute.get(ran, 0.0) + spent
        memory_bytes = None if used.memory_bytes is None else used.memory_bytes // len(sandboxes)
        for sandbox in sandboxes:
            yield DeviceUsage(sandbox.number, self._compute.get(sandbox.number, 0.0), memory_bytes)


class Executors:
    """The executors of a node, by tenant and device."""

    def __init__(
        self,
        cells: CellPool,
        resources: SandboxResources,
        drivers: Drivers,
        attachment: DeviceAttachment,
        ended: Callable[[Cell], None],
        loop: EventLoop,
        result_bytes: int,
    ) -> None:
        """`ended` is called for the cell of each graph that has left its executor."""
        self._cells = cells
        self._resources = resources
        self._drivers = drivers
        self._attachment = attachment
        self._tell_ended = ended
        self._loop = loop
        self._result_bytes = result_bytes
        self._numbers = count(FIRST_NUMBER)
        self._executors: dict[int, Executor] = {}
        self._shared: dict[tuple[str, Place], Executor] = {}
        self._allotted: dict[int, Allotment] = {}  # slices of graphs, by sandbox
        self._executor_of: dict[int, Executor] = {}  # by sandbox
        self.counts = ExecutorCounts()

    def expect(self, sandbox: int, launch: Launch) -> None:
        """Prepare for a sandbox that may be a graph's. Its slice may change before it has a cell."""
        if _is_resident(launch):
            self._allotted[sandbox] = Allotment(launch.share, launch.share)

    def forget(self, sandbox: int) -> None:
        self._allotted.pop(sandbox, None)
        self._executor_of.pop(sandbox, None)

    def resize(self, sandbox: int, share: float, ceiling: float) -> None:
        """Set the slice of a graph. Its executor has the slices of all its graphs that are at work."""
        if sandbox in self._allotted:
            self._allotted[sandbox] = Allotment(share, ceiling)
            if (executor := self._executor_of.get(sandbox)) is not None:
                executor.slice_changed()

    def take(self, zygote: ZygoteProcess, sandbox: int, launch: Launch, size: int) -> tuple[Cell, int | None]:
        """Return a cell for a launch, and the limit of memory that its process sets itself. Raises `OSError`.

        A graph gets one in its tenant's executor on the device. All others have a process of their own.
        """
        if not _is_resident(launch):
            return self._cells.take(zygote, launch.tenant, size)
        executor = self._shared.get((launch.tenant, launch.place))
        if executor is None:
            executor = self._start(zygote, launch, size)
        elif executor.cell.process.cgroup is not None:
            executor.cell.process.cgroup.limit_memory(executor.memory_bytes + size)
        seat = SeatCell(sandbox, executor, self._tell_ended)
        executor.seats[seat] = size
        self._executor_of[sandbox] = executor
        return seat, None

    def _start(self, zygote: ZygoteProcess, launch: Launch, size: int) -> Executor:
        cell, data_bytes = self._cells.take(zygote, launch.tenant, size)
        number = next(self._numbers)
        executor = Executor(number, launch, cell, self._drivers, self._loop, self._closed, self._allotted, self.counts)
        self._executors[number] = executor
        # Elsewhere nothing could raise the limits for a second graph: those of a process, or those of a GPU.
        if data_bytes is None and not self._drivers.has_own_memory(launch.place):
            self._shared[launch.tenant, launch.place] = executor
        self._drivers.place(number, launch.place, launch.tenant)
        executor.start(self._result_bytes, data_bytes, self._attachment.before_init(executor))
        self.counts.started += 1
        return executor

    def _closed(self, executor: Executor) -> None:
        self._executors.pop(executor.number, None)
        key = (executor.launch.tenant, executor.launch.place)
        if self._shared.get(key) is executor:
            del self._shared[key]

    def usage(self, rows: list[DeviceUsage]) -> list[DeviceUsage]:
        """Return the rows with those of executors divided by graph."""
        found: list[DeviceUsage] = []
        for row in rows:
            executor = self._executors.get(row.sandbox)
            if row.sandbox < FIRST_NUMBER:
                found.append(row)
            elif executor is not None:
                found += executor.usage_by_graph(row)
        return found

    def figures(self) -> dict[str, float]:
        """Return the numbers of executors and of graphs in them, and the counts since the server started."""
        graphs = sum(len(executor.seats) for executor in self._executors.values())
        return {"executors": len(self._executors), "graphs": graphs, **asdict(self.counts)}


def _is_resident(launch: Launch) -> bool:
    return bool(launch.module) and launch.main != TRIAL
