"""A sandbox's process as the server holds it: by a pidfd, so that no other process is ever meant."""

import contextlib
import os
import select
from collections.abc import Callable
from pathlib import Path
from signal import Signals, pidfd_send_signal
from typing import Protocol

from aliquot.live.node.cgroups import Group

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Loop(Protocol):
    """What is used of an event loop."""

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None: ...
    def remove_reader(self, fd: int) -> bool: ...
    def add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None: ...
    def remove_writer(self, fd: int) -> bool: ...


class Process:
    __slots__ = ("_loop", "_pidfd", "group", "pid", "slot")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._pidfd: int | None = None
        self.pid = 0
        self.slot = 0  # of the node's: which user it is
        self.group: Group | None = None

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
