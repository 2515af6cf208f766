"""A zygote that isolates its sandboxes itself, for machines on which it cannot be confined."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import isolation, linux
from .zygote_process import EXTRA_FD, Zygote, arrange_descriptors, set_environment

if TYPE_CHECKING:
    import socket


class PrivilegedZygote(Zygote):
    """Speaks with the server itself, and keeps the privileges that its sandboxes drop after the fork."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        super().__init__(control, settings)
        self._namespaces: list[tuple[int, int]] = []  # kinds that a sandbox has for itself, and the zygote's own
        self._sandboxes: set[int] = set()  # pids

    def _prepare(self) -> None:
        for layer, name, kind in (("pid", "pid", linux.CLONE_NEWPID), ("network", "net", linux.CLONE_NEWNET)):
            if self._isolation[layer]:
                self._namespaces.append((kind, os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)))

    def _loop(self) -> NoReturn:
        wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if wake in ready:
                os.read(wake, 4096)
                self._reap()
            if self._control.fileno() in ready:
                request, fds = self._receive()
                try:
                    self._fork(request, fds)
                finally:
                    for fd in fds:
                        os.close(fd)

    def _fork(self, request: dict[str, Any], fds: list[int]) -> None:
        try:
            pid = self._fork_process()
        except OSError as error:
            self._send({"unforked": request["fork"], "why": str(error)})
            return
        if pid == 0:
            self._in_child(self._become_sandbox, request, fds)
        self._sandboxes.add(pid)
        pidfd = os.pidfd_open(pid)
        try:
            self._send({"forked": request["fork"]}, (pidfd,))
        finally:
            os.close(pidfd)

    def _fork_process(self) -> int:
        pid = -1
        try:
            for kind, _ in self._namespaces:
                linux.unshare(kind)
            pid = os.fork()
        finally:
            if pid != 0:
                # Back to the zygote's own namespaces. Otherwise the next pid namespace could not be made.
                for kind, own in self._namespaces:
                    linux.enter_namespace(own, kind)
        return pid

    def _become_sandbox(self, request: dict[str, Any], fds: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        views = isolation.take_views(request, fds)
        for procs in fds[3:]:
            os.write(procs, b"0")  # enter its control groups before it uses any resources
        sock = arrange_descriptors(fds[:3], [fd for _, fd in views], self._streams)
        request["views"] = [(target, EXTRA_FD + index) for index, (target, _) in enumerate(views)]
        set_environment(request["env"])
        self._serve_sandbox(sock, lambda: isolation.enter(self._isolation, request))

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._sandboxes.discard(pid)
        if not self._isolation["pid"]:
            self._end_strays()

    def _end_strays(self) -> None:
        """Kill processes that ended sandboxes left behind: our children that we did not fork."""
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if int(pid) not in self._sandboxes:
                os.kill(int(pid), signal.SIGKILL)
