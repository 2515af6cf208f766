"""The supervisor of a confined zygote: relays between server and zygote, and prepares the namespaces of sandboxes.

It runs no code of a tenant, and trusts nothing that the zygote says (`confinement.py`). Its messages to the server are
those of a zygote (`zygote.py`). The zygote itself sends only `ready` or `failed`, once, to its supervisor. The answer
to `ready` says that the processes which the imports left behind are killed.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Callable, NoReturn  # noqa: UP035 - Python 3.9 on

from . import confinement, isolation, linux
from .borrowed_memory import NamespaceHolder, child_runner

PACKET_BYTES = 65536
MAX_DESCRIPTORS = 16
_MAX_ERROR_BYTES = 4096
_MAX_REASON_CHARACTERS = 2000
_FORK_TIMEOUT_S = 60  # for the zygote to fork a prepared sandbox
_PAUSE_AFTER_MS = 200
_CREDENTIALS = struct.Struct("iII")


class Supervisor:
    """Serves the server's requests until the server or the zygote ends."""

    def __init__(
        self, control: socket.socket, zygote: socket.socket, pid: int, errors: int, layers: dict[str, Any]
    ) -> None:
        """`pid` and `errors` are the zygote's process and the pipe with its errors."""
        self._control = control
        self._zygote = zygote
        self._pid = pid
        self._errors = errors
        self._layers = layers
        self._last_errors = b""
        self._ready = False
        self._paused = False
        self._run_child = child_runner()
        self._holder = NamespaceHolder()

    def serve(self) -> NoReturn:
        wake, wake_end = os.pipe()
        for fd in (wake, wake_end, self._errors):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        for fd in (self._control.fileno(), self._zygote.fileno(), wake, self._errors):
            poll.register(fd, select.POLLIN)
        gc.disable()  # there are no cycles
        while True:
            ready = [fd for fd, _ in poll.poll(self._pause_ms())]
            if not ready:
                self._paused = True
                _signal(self._pid, signal.SIGSTOP)
            if self._errors in ready and not self._read_errors():
                poll.unregister(self._errors)
            if self._zygote.fileno() in ready:
                self._take_message()
            if wake in ready:
                os.read(wake, 4096)
                self._reap()
            if self._control.fileno() in ready:
                self._take_request()

    # --- the zygote -------------------------------------------------------------------------------------

    def _read_errors(self) -> bool:
        """Keep the last errors. Returns False when there will be no more."""
        try:
            data = os.read(self._errors, PACKET_BYTES)
        except BlockingIOError:
            return True
        self._last_errors = (self._last_errors + data)[-_MAX_ERROR_BYTES:]
        return bool(data)

    def _take_message(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._zygote, PACKET_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, fds = b"", []
        for fd in fds:
            os.close(fd)
        if not data and not fds:
            self._end()
        message = None if fds or self._ready else _read_message(data)
        if message is None:
            shown = data[:80].decode(errors="replace")
            self._give_up(f"The runtime's process was ended: its imports sent {shown!r} to the platform.")
        elif message:
            self._give_up(message)
        else:
            self._ready = True
            self._end_strays()
            self._zygote.send(b"{}")
            self._send({"ready": True})

    def _end_strays(self) -> None:
        """Kill processes that the imports left behind. There are no sandboxes yet."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in {os.getpid(), self._pid}:
                _signal(int(entry.name), signal.SIGKILL)

    def _pause_ms(self) -> int | None:
        """Return how long to wait until the zygote is stopped, or None if it shall run or is stopped.

        It is stopped while it has nothing to fork, so that its imports compute nothing in the background.
        """
        return None if self._paused or not self._ready else _PAUSE_AFTER_MS

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._end()

    def _end(self) -> NoReturn:
        """Report the zygote's last errors as our own, and end. The kernel ends all sandboxes."""
        while self._read_errors() and select.select([self._errors], [], [], 0)[0]:
            pass
        os.write(2, self._last_errors)
        os._exit(1)

    def _give_up(self, why: str) -> NoReturn:
        self._send({"failed": why[:_MAX_REASON_CHARACTERS]})
        os._exit(1)

    # --- the server -------------------------------------------------------------------------------------

    def _send(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())

    def _take_request(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._control, PACKET_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)  # the server has ended, and the kernel ends the zygote and all sandboxes
        request = json.loads(data)
        try:
            self._prepare(request, fds)
        except OSError as error:
            self._send({"unforked": request["fork"], "why": str(error)})
        finally:
            for fd in fds:
                os.close(fd)

    def _prepare(self, request: dict[str, Any], fds: list[int]) -> None:
        """Pass the request on to the zygote, and run a preparer of the sandbox's namespaces at the same time."""
        fds = list(fds)
        request["views"] = isolation.take_views(request, fds)
        sandbox, sandbox_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with sandbox:
            # Before the zygote has its end: the kernel adds its credentials only to messages that are sent afterwards.
            sandbox.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._paused = False
            _signal(self._pid, signal.SIGCONT)
            with sandbox_end:
                socket.send_fds(self._zygote, [json.dumps(request).encode()], [sandbox_end.fileno(), *fds])
            preparer = Preparer(self._control, sandbox, self._layers, self._holder, self._errors, self._read_errors)
            try:
                self._run_child(lambda: preparer.run(request))
            finally:
                linux.set_dumpable(dumpable=False)  # the preparer has the same memory


class Preparer:
    """Makes the namespaces of one sandbox, and reports it to the server when the zygote has forked it.

    It is a child of the supervisor that uses the supervisor's memory (`borrowed_memory.py`). The supervisor waits for
    it, as the zygote forks only one sandbox at a time.
    """

    def __init__(
        self,
        control: socket.socket,
        sandbox: socket.socket,
        layers: dict[str, Any],
        holder: NamespaceHolder,
        errors: int,
        read_errors: Callable[[], bool],
    ) -> None:
        """`errors` is the pipe with the zygote's errors, and `read_errors` reads it."""
        self._control = control
        self._sandbox = sandbox
        self._layers = layers
        self._holder = holder
        self._errors = errors
        self._read_errors = read_errors

    def run(self, request: dict[str, Any]) -> None:
        try:
            self._fork(request)
        except BaseException as error:  # noqa: BLE001 - nothing may be raised into the supervisor's code
            why = str(error) or type(error).__name__
            with contextlib.suppress(OSError):  # the server has ended
                self._control.send(json.dumps({"unforked": request["fork"], "why": why}).encode())

    def _fork(self, request: dict[str, Any]) -> None:
        spaces = confinement.make_spaces(self._layers, request, self._holder)
        socket.send_fds(self._sandbox, [b"!"], spaces)
        self._wait_for_fork()
        pid, namespace = _receive_process(self._sandbox)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(self._control, [json.dumps({"forked": request["fork"]}).encode()], [pidfd])
        try:
            confinement.mount_processes(namespace)
            answer = b"!"
        except OSError as error:
            answer = str(error).encode()
        with contextlib.suppress(OSError):  # it has ended, and the server will hear of it
            self._sandbox.send(answer)

    def _wait_for_fork(self) -> None:
        """Wait for the sandbox. Read errors of the zygote meanwhile, which waits if their pipe is full."""
        poll = select.poll()
        poll.register(self._sandbox, select.POLLIN)
        poll.register(self._errors, select.POLLIN)
        until_s = time.monotonic() + _FORK_TIMEOUT_S
        while (left_s := until_s - time.monotonic()) > 0:
            ready = [fd for fd, _ in poll.poll(left_s * 1000)]
            if self._sandbox.fileno() in ready:
                return
            if self._errors in ready and not self._read_errors():
                poll.unregister(self._errors)
        raise OSError(0, f"the zygote did not fork it within {_FORK_TIMEOUT_S} s")


def receive_spaces(preparer: int) -> list[int]:
    """Return the namespaces from the preparer. Raises `OSError` if it could not make them."""
    with socket.socket(fileno=os.dup(preparer)) as sock:
        said, fds, _, _ = socket.recv_fds(sock, 1, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    if not said:
        raise OSError(0, "the preparer has ended")
    return fds


def show_process(preparer: int) -> None:
    """Show the preparer this process and its pid namespace."""
    namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    with socket.socket(fileno=os.dup(preparer)) as sock:
        socket.send_fds(sock, [b"?"], [namespace])
    os.close(namespace)


def wait_for_mounts(preparer: int) -> None:
    """Wait until the preparer has mounted /proc. Raises `OSError`."""
    with socket.socket(fileno=preparer) as sock:
        said = sock.recv(PACKET_BYTES)
    if said != b"!":
        raise OSError(0, said.decode() or "the preparer has ended")


def _receive_process(sock: socket.socket) -> tuple[int, int]:
    """Return the pid of the sender, which the kernel vouches for, and the pid namespace that it has sent."""
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4)
    data, ancillary, _, _ = sock.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
    pid, namespace = -1, -1
    for _, kind, content in ancillary:
        if kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(content)[0]
        elif kind == socket.SCM_RIGHTS:
            namespace = array.array("i", content[:4])[0]
    if not data or pid <= 0 or namespace < 0:
        raise OSError(0, "it ended before it was isolated")
    return pid, namespace


def _read_message(data: bytes) -> str | None:
    """Return the zygote's reason to fail, an empty text if it is ready, or None for anything else."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if message == {"ready": True}:
        return ""
    if isinstance(message, dict) and list(message) == ["failed"] and isinstance(message["failed"], str):
        return message["failed"] or "The imports failed."
    return None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def fork_zygote(layers: dict[str, Any], procs: list[int]) -> tuple[socket.socket, int, int] | socket.socket:
    """Fork the zygote, which gets its end of the socket. The supervisor gets its own, the pid and a pipe of errors."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    errors, errors_end = os.pipe()
    pid = os.fork()
    if pid:
        theirs.close()
        os.close(errors_end)
        mine.setblocking(False)
        return mine, pid, errors
    for fd in procs:
        os.write(fd, b"0")  # enter its control groups before it uses any resources
    os.dup2(errors_end, 2)
    os.dup2(theirs.fileno(), 3, inheritable=False)
    os.closerange(4, 65536)
    mine.detach()
    theirs.detach()
    os.chdir("/tmp")  # noqa: S108 - its own
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    isolation.set_oom_score()
    confinement.confine_zygote(layers)
    return socket.socket(fileno=3)
