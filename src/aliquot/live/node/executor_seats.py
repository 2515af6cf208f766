"""The channels of one resident graph into its executor, in the form of a cell of its own."""

import contextlib
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from aliquot.live.node.base import Launch, Status
from aliquot.live.node.cell import Cell, EventLoop

if TYPE_CHECKING:
    from aliquot.live.node.executors import Executor


_RECV_BYTES = 65536
MAX_LATE_READS = 8  # more than a socket holds


class SeatSandbox(Protocol):
    """The sandbox of a resident graph, as its executor sees it."""

    number: int
    launch: Launch
    awaits_answer: bool  # the process has a request that it has not answered yet

    @property
    def is_busy(self) -> bool:
        """True while it starts, runs or moves."""
        ...

    def turn(self) -> None:
        """Send the run that has waited for its turn."""

    def process_ended(self) -> None: ...
    def never_forked(self, status: Status, why: str) -> None: ...


class SeatCell(Cell):
    """A cell whose process is an executor's."""

    def __init__(self, number: int, executor: "Executor", ended: Callable[[Cell], None]) -> None:
        super().__init__(number, executor.cell.process, ended, zygote_crashed=executor.cell.zygote_crashed)
        self.executor = executor
        self._drained = 0
        self._gentle: EventLoop | None = None  # that waits until the executor closes its end

    @property
    def sandbox(self) -> SeatSandbox | None:
        return cast("SeatSandbox | None", self.listener)

    def on_fork(self, then: Callable[[], None]) -> None:
        self.executor.cell.on_fork(then)

    def on_network(self, then: Callable[[], None]) -> None:
        """Connect the graph to its executor, and call `then`, as soon as the executor takes graphs."""
        self.executor.connect(self, then)

    def end(self, *, exits: bool) -> None:
        self.executor.leave(self)

    def kill(self) -> None:
        self.executor.leave(self)

    def close_gently(self, loop: EventLoop) -> None:
        """Tell the executor to free what the graph has, and wait until it closes its end."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self._gentle = loop
        loop.add_reader(self.sock.fileno(), self._drain)

    def _drain(self) -> None:
        try:
            if self.sock.recv(_RECV_BYTES):
                self._drained += 1
                if self._drained > MAX_LATE_READS:  # a process that goes on sending must not keep the server reading
                    self.executor.close()
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.left()

    def left(self) -> None:
        """Report that the graph's memory is free."""
        self.executor.has_left(self)
        if self.has_ended:
            return
        if self._gentle is not None:
            self._gentle.remove_reader(self.sock.fileno())
        for fd in self.take_process_ends():  # it was never connected
            os.close(fd)
        self._end()
