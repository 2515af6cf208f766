"""A cell: a forked process with its walls up and its channels open, in which no function has moved in yet.

It is the costly part of a cold start and knows nothing of any tenant, so one is kept ready for each zygote. Nobody
moves into a cell twice.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from signal import Signals
from typing import Protocol

from aliquot.live.node.base import Status
from aliquot.live.node.process import Loop, Process


class Tenant(Protocol):
    """The sandbox that has moved in."""

    def process_ended(self) -> None: ...
    def never_forked(self, status: Status, why: str) -> None: ...


class Owner(Protocol):
    def ended(self, cell: "Cell") -> None:
        """The process is no more, or never was."""


class Cell:
    def __init__(self, number: int, owner: Owner, loop: Loop) -> None:
        self.number = number
        self.process = Process(loop)
        self.tenant: Tenant | None = None
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
