"""A cell: a forked process with its walls up and its channels open, in which no function has moved in yet.

It is the costly part of a cold start and knows nothing of any tenant, so one is kept ready for each zygote. Nobody
moves into a cell twice.
"""

import contextlib
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from signal import Signals, pidfd_send_signal
from typing import Protocol

from aliquot.live.node.base import Status
from aliquot.live.node.cgroups import SandboxCgroup

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class EventLoop(Protocol):
    """What is used of an event loop."""

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None: ...
    def remove_reader(self, fd: int) -> bool: ...
    def add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None: ...
    def remove_writer(self, fd: int) -> bool: ...


class ProcessHandle:
    __slots__ = ("_loop", "_pidfd", "group", "pid", "slot")

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._pidfd: int | None = None
        self.pid = 0
        self.slot = 0  # of the node's: which user it is
        self.group: SandboxCgroup | None = None

    def forked(self, pid: int, pidfd: int, ended: Callable[[], None]) -> None:
        """It lives. `ended` is called once when it and, in a pid namespace, all its children have ended."""
        self.pid = pid
        self._pidfd = pidfd

        def has_ended() -> None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
            self._pidfd = None
            ended()

        self._loop.add_reader(pidfd, has_ended)

    def is_over(self) -> bool:
        """Whether it has ended, though the loop has not told of it yet."""
        if self._pidfd is None:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, number: Signals) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended; the pidfd will say so
                pidfd_send_signal(self._pidfd, number)

    def pids(self) -> list[int]:
        """It and its children, where they can be told."""
        return list(dict.fromkeys([self.pid, *(self.group.pids() if self.group is not None else ())]))

    def send_all(self, number: Signals) -> None:
        for pid in self.pids()[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        self.send(number)

    def usage(self) -> tuple[int, float] | None:
        """Bytes and seconds of CPU; nothing if it does not live yet, or any more.

        The bytes are what it has added to its zygote's, children and scratch files included, where that is counted.
        """
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            used = self.group.used_bytes() if self.group is not None else int(fields[21]) * _PAGE_BYTES
        except OSError:
            return None
        return used, (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND

    def ran_out_of_memory(self) -> bool:
        return self.group is not None and self.group.ran_out_of_memory()


class CellListener(Protocol):
    """The sandbox that has moved in."""

    def process_ended(self) -> None: ...
    def never_forked(self, status: Status, why: str) -> None: ...


class Owner(Protocol):
    def ended(self, cell: "Cell") -> None:
        """The process is no more, or never was."""


class Cell:
    def __init__(self, number: int, owner: Owner, loop: EventLoop) -> None:
        self.number = number
        self.process = ProcessHandle(loop)
        self.tenant: CellListener | None = None
        self.has_ended = False
        self.view: int | None = None  # where the kernel asks about its datasets, until somebody answers there
        self._owner = owner
        self._unwanted = False
        self._open = False
        self._when_alive: list[Callable[[], None]] = []

    def open(self) -> tuple[int, int, int]:
        """Make the channels. Returns the other ends, which the caller closes."""
        with contextlib.ExitStack() as undo:
            self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(self.sock.close)
            undo.callback(theirs.close)
            self.out, their_out = _pipe(undo)
            self.err, their_err = _pipe(undo)
            undo.pop_all()
        self.sock.setblocking(False)
        self._open = True
        return theirs.detach(), their_out, their_err

    def close(self) -> None:
        """Our ends of the channels."""
        if self._open:
            self._open = False
            self.sock.close()
            os.close(self.out)
            os.close(self.err)
        view = self.take_view()
        if view is not None:
            os.close(view)

    def take_view(self) -> int | None:
        """From now on the caller's."""
        view, self.view = self.view, None
        return view

    def kill(self) -> None:
        """End it and all its children; `ended` tells when."""
        self._unwanted = True
        self.process.send(Signals.SIGKILL)

    def when_alive(self, then: Callable[[], None]) -> None:
        """Now, if it has a process; otherwise as soon as it has."""
        if self.process.pid:
            then()
        else:
            self._when_alive.append(then)

    # --- what its zygote tells --------------------------------------------------------------------------

    def forked(self, pid: int, pidfd: int) -> None:
        self.process.forked(pid, pidfd, self._ended)
        for then in self._when_alive:
            then()
        if self._unwanted:
            self.process.send(Signals.SIGKILL)

    def never_forked(self, status: Status, why: str) -> None:
        """The zygote could not, or died before it told."""
        try:
            if self.tenant is not None:
                self.tenant.never_forked(status, why)
        finally:
            self._gone()

    def _ended(self) -> None:
        try:
            if self.tenant is not None:
                self.tenant.process_ended()
        finally:  # whatever became of that: others wait for what it held
            self._gone()

    def _gone(self) -> None:
        self.has_ended = True
        self.close()
        self._owner.ended(self)


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer
