"""A cell: a forked and isolated process with open channels, in which no function has been loaded yet.

Making a cell is the costly part of a cold start and does not depend on a tenant, so each zygote keeps some ready.
A cell serves one sandbox only.
"""

import contextlib
import os
import select
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals, pidfd_send_signal
from typing import Protocol

from aliquot.budgets import Reservation
from aliquot.live.node.base import Status
from aliquot.live.node.cgroups import SandboxCgroup

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_EXIT_TIMEOUT_S = 5.0  # for the code that a function has for the end of its sandbox
_PROCESS_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP


class EventLoop(Protocol):
    """The methods of an event loop that channels and processes use."""

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None: ...
    def remove_reader(self, fd: int) -> bool: ...
    def add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None: ...
    def remove_writer(self, fd: int) -> bool: ...
    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> object: ...


class SharedUse(Protocol):
    """The use of a process by several sandboxes: an executor with its graphs."""

    @property
    def sandboxes(self) -> Sequence[object]: ...
    def is_idle(self) -> bool: ...


class ProcessHandle:
    """A sandbox's process, held by a pidfd so that a signal never reaches another process with the same pid."""

    __slots__ = ("_loop", "_pidfd", "cgroup", "frozen", "pid", "sharing", "slot")

    def __init__(self, slot: int, cgroup: SandboxCgroup | None, loop: EventLoop) -> None:
        self._loop = loop
        self._pidfd: int | None = None
        self.pid = 0  # until it has been forked
        self.slot = slot  # the node's number for the user id it runs with
        self.cgroup = cgroup
        self.frozen = False
        self.sharing: SharedUse | None = None  # if it serves several sandboxes

    def forked(self, pid: int, pidfd: int, ended: Callable[[], None]) -> None:
        """Watch the process. `ended` is called once, when it and the children in its pid namespace have ended."""
        self.pid = pid
        self._pidfd = pidfd

        def has_ended() -> None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
            self._pidfd = None
            ended()

        self._loop.add_reader(pidfd, has_ended)

    @property
    def pidfd(self) -> int | None:
        """The descriptor of the process while it runs."""
        return self._pidfd

    def is_over(self) -> bool:
        """Return whether the process has ended, even if the event loop has not reported it yet."""
        if self._pidfd is None:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, number: Signals) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended; the pidfd will report it
                pidfd_send_signal(self._pidfd, number)

    def pids(self) -> list[int]:
        """Return the pids of the process and, if it has a control group, of its children."""
        return list(dict.fromkeys([self.pid, *(self.cgroup.pids() if self.cgroup is not None else ())]))

    def send_all(self, number: Signals) -> None:
        for pid in self.pids()[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        self.send(number)

    def freeze(self) -> None:
        """Stop all processes of the sandbox until `thaw`.

        Without a control group only its process group is stopped, by a signal. A process that left the group goes on.
        One that serves several sandboxes is frozen only when all of them are idle.
        """
        if self.sharing is not None and not self.sharing.is_idle():
            return
        if not self.frozen and self._pidfd is not None:
            self.frozen = True
            if self.cgroup is None or not self.cgroup.set_frozen(frozen=True):
                self._send_group(Signals.SIGSTOP)

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            if self.cgroup is None or not self.cgroup.set_frozen(frozen=False):
                self._send_group(Signals.SIGCONT)

    def kill(self) -> None:
        """Kill the process, and without a control group all of its process group, which nobody else may end."""
        if self.cgroup is None:
            self._send_group(Signals.SIGKILL)
        self.send(Signals.SIGKILL)
        self.thaw()  # a process that is frozen by version 1 ends only then

    def kill_later(self, kill: Callable[[], None]) -> None:
        """Call `kill` after the time that a function has for the end of its sandbox."""
        self._loop.call_later(_EXIT_TIMEOUT_S, kill)

    def _send_group(self, number: Signals) -> None:
        if self._pidfd is None:
            return
        try:
            pidfd_send_signal(self._pidfd, number, None, _PROCESS_GROUP)
        except ProcessLookupError:
            pass  # it has just ended
        except OSError:  # before Linux 6.9
            self.send_all(number)

    def usage(self) -> tuple[int, float, int] | None:
        """Return bytes of memory, seconds of CPU and number of processes, or None when the process is not running.

        With a control group, the bytes are those that the sandbox added to its zygote's, with children and scratch
        files, and the seconds are those of all its processes. Sandboxes that share a process have equal parts.
        """
        try:
            own = _stat(self.pid)
            used = self.cgroup.used_bytes() if self.cgroup is not None else int(own[21]) * _PAGE_BYTES
        except OSError:
            return None
        pids, ticks = self.pids(), _cpu_ticks(own)
        for pid in pids:
            if pid != self.pid:
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    ticks += _cpu_ticks(_stat(pid))
        users = 1 if self.sharing is None else max(len(self.sharing.sandboxes), 1)
        return used // users, ticks / _TICKS_PER_S / users, len(pids)

    def ran_out_of_memory(self) -> bool:
        return self.cgroup is not None and self.cgroup.ran_out_of_memory()


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's state that follow its name. Raises `OSError`."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_ticks(fields: list[str]) -> int:
    """Return the processor time of a process and of the children that it has waited for."""
    return sum(map(int, fields[11:15]))


class CellListener(Protocol):
    """Receives the end of a cell's process: the sandbox that the cell serves."""

    def process_ended(self) -> None: ...
    def never_forked(self, status: Status, why: str) -> None: ...


class Cell:
    """A process to be, with the server's ends of its channels."""

    def __init__(
        self,
        number: int,
        process: ProcessHandle,
        ended: Callable[["Cell"], None],
        *,
        own_network: bool = False,
        zygote_crashed: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make the channels. `ended` is called when the process has ended or could not be forked. Raises `OSError`.

        With `own_network` the cell is used only after `network_made`. `zygote_crashed` says whether the cell ends
        because its zygote did.
        """
        self.number = number
        self.process = process
        self.listener: CellListener | None = None
        self.reserved: Reservation | None = None  # its part of the tenant's sandboxes
        self.has_ended = False
        self.zygote_crashed = zygote_crashed
        self._tell_ended = ended
        self._unwanted = False
        self._views: dict[str, int] = {}  # descriptors on which the kernel asks about files, by mount point
        self._on_fork: list[Callable[[], None]] = []
        self._has_network = not own_network
        self._on_network: list[Callable[[], None]] = []
        with contextlib.ExitStack() as undo:
            self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(self.sock.close)
            undo.callback(theirs.close)
            self.out, their_out = _pipe(undo)
            self.err, their_err = _pipe(undo)
            undo.pop_all()
        self.sock.setblocking(False)
        self._open = True
        self._theirs: tuple[int, ...] = (theirs.detach(), their_out, their_err)

    def take_process_ends(self) -> tuple[int, ...]:
        """Return the process's ends of the channels. The caller closes them."""
        theirs, self._theirs = self._theirs, ()
        return theirs

    def close(self) -> None:
        """Close the server's ends of the channels."""
        if self._open:
            self._open, self.reserved = False, None
            self.sock.close()
            os.close(self.out)
            os.close(self.err)
        for view in self.take_views().values():
            os.close(view)

    def keep_view(self, place: str, view: int) -> None:
        self._views[place] = view

    def take_views(self) -> dict[str, int]:
        """Return the descriptors for datasets and volumes, by mount point. The caller closes them."""
        views, self._views = self._views, {}
        return views

    def assign(self, listener: CellListener) -> None:
        """Let a sandbox use the cell."""
        self.listener = listener

    def end(self, *, exits: bool) -> None:
        """Close the channels and kill the process. One that `exits` gets time to run its function's code for this.

        Its launcher finds the connection closed, and ends after that code.
        """
        reserved = self.reserved
        self.close()
        if exits:
            self.reserved = reserved  # it counts until its end
            self.process.thaw()
            self.process.kill_later(self.kill)
        else:
            self.kill()

    def kill(self) -> None:
        """Kill the process with all its children. `ended` is called when they have ended."""
        self._unwanted = True
        self.process.kill()

    def on_fork(self, then: Callable[[], None]) -> None:
        """Call `then` when the process exists, which may be now."""
        if self.process.pid:
            then()
        else:
            self._on_fork.append(then)

    @property
    def is_ready(self) -> bool:
        """True when the process exists and has its network."""
        return bool(self.process.pid) and self._has_network

    def on_ready(self, then: Callable[[], None]) -> None:
        """Call `then` when the cell is ready, which may be now."""
        self.on_fork(lambda: self.on_network(then))

    def on_network(self, then: Callable[[], None]) -> None:
        """Call `then` when the process has its network, which may be now."""
        if self._has_network:
            then()
        else:
            self._on_network.append(then)

    def network_made(self, why_not: str) -> None:
        """Begin to use the cell, or end it if its network could not be made."""
        if why_not:
            if self.listener is not None:
                self.listener.never_forked(Status.INTERNAL_ERROR, f"The sandbox got no network: {why_not}.")
            self.kill()
            return
        self._has_network = True
        for then in self._on_network:
            then()

    # --- reports of its zygote --------------------------------------------------------------------------

    def forked(self, pid: int, pidfd: int) -> None:
        self.process.forked(pid, pidfd, self._process_ended)
        for then in self._on_fork:
            then()
        if self._unwanted:
            self.process.send(Signals.SIGKILL)

    def never_forked(self, status: Status, why: str) -> None:
        """Report that the zygote could not fork, or ended before it did."""
        try:
            if self.listener is not None:
                self.listener.never_forked(status, why)
        finally:
            self._end()

    def _process_ended(self) -> None:
        try:
            if self.listener is not None:
                self.listener.process_ended()
        finally:  # others wait for the resources of the cell, even if the listener fails
            self._end()

    def _end(self) -> None:
        self.has_ended, self.reserved = True, None
        self.close()
        self._tell_ended(self)


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer
