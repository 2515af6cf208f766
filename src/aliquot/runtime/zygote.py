"""A zygote: a process that has loaded the imports of a profile and forks sandboxes for the server.

It is run by file path, in the profile's own Python: `python -I zygote.py FD`. FD is its end of a Unix socket of
packets. Each packet is a JSON object:

    to the zygote    {"imports": […], "isolation": {…}}   first: the imports and the layers (`isolation.enclose`)
                     {"fork": n, "env": {…}, …}           a sandbox, with descriptors: its socket, stdout, stderr, the
                                                          `cgroup.procs` files of its control groups, and its view of
                                                          datasets if "view" is true (`isolation.enter`)
    to the server    {"ready": true} or {"failed": "…"}
                     {"forked": n} and its pidfd, or {"unforked": n, "why": "…"}
                     {"ended": n, "status": s}            the wait status

A zygote has one thread, has no descriptor of the server except the socket, and never uses a device.
"""

from __future__ import annotations

import base64  # noqa: F401 - modules that every sandbox needs are loaded once here
import fcntl
import gc
import importlib
import importlib.util
import io  # noqa: F401
import json
import os
import pickle  # noqa: F401
import select
import signal
import socket
import sys
import traceback
import zipfile  # noqa: F401
from pathlib import Path
from typing import Any, NoReturn

_PACKET_BYTES = 65536
_MAX_DESCRIPTORS = 16
_SANDBOX_FD = 3  # the sandbox's socket
_VIEW_FD = 4  # the sandbox's view of datasets, until it is attached


def _load_runtime() -> None:
    """Load the package of this file under its own name: the environment may have another Aliquot, or none."""
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "_aliquot_runtime", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{here} is not Aliquot's runtime")
    module = importlib.util.module_from_spec(spec)
    sys.modules["_aliquot_runtime"] = module
    spec.loader.exec_module(module)


TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import frames, isolation, launcher, linux, random_state, sdk_support, seccomp
else:
    _load_runtime()
    from _aliquot_runtime import frames, isolation, launcher, linux, random_state, sdk_support, seccomp


class Zygote:
    """Loads the imports, forks sandboxes on request, and reports their ends."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._settings = settings
        self._isolation = settings["isolation"]
        self._sandboxes: dict[int, int] = {}  # the server's number by pid
        self._namespaces: list[tuple[int, int]] = []  # kinds that a sandbox has for itself, and the zygote's own

    def serve(self) -> NoReturn:
        failure = self._load()
        if failure:
            self._send({"failed": failure})
            sys.exit(0)
        # The loaded objects stay: a collection in a sandbox must not touch their pages, which would copy them.
        gc.collect()
        gc.freeze()
        if self._isolation["seccomp"]:
            seccomp.program()
        for layer, name, kind in (("pid", "pid", linux.CLONE_NEWPID), ("network", "net", linux.CLONE_NEWNET)):
            if self._isolation[layer]:
                self._namespaces.append((kind, os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)))
        self._send({"ready": True})
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
                self._take_request()

    def _load(self) -> str:
        """Load the imports. Return why one failed, or an empty text."""
        for name in self._settings["imports"]:
            try:
                importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001 - a module may raise anything when it is imported
                traceback.print_exc()
                said = "".join(traceback.format_exception_only(type(error), error)).strip()
                return f"The import {name!r} failed: {said}. Name it in `requirements`, or correct `imports`."
        return ""

    def _send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        data = json.dumps(message).encode()
        if fds:
            socket.send_fds(self._control, [data], list(fds))
        else:
            self._control.send(data)

    def _take_request(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, _MAX_DESCRIPTORS)
        if not data:
            sys.exit(0)  # the server has ended, and the kernel ends the sandboxes
        request = json.loads(data)
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
            try:
                self._become_sandbox(request, fds)
            except BaseException:  # noqa: BLE001 - nothing may return into the zygote's loop
                traceback.print_exc()
            finally:
                os._exit(70)
        self._sandboxes[pid] = request["fork"]
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
        view = fds.pop() if request["view"] else None
        for procs in fds[3:]:
            os.write(procs, b"0")  # enter its control groups before it uses any resources
        sock = _arrange_descriptors(fds[:3], view)
        request["view"] = None if view is None else _VIEW_FD
        os.environ.update(request["env"])
        try:
            isolation.enter(self._isolation, request)
        except OSError as error:
            text = f"The sandbox could not be isolated: {error}. `aliquot doctor` shows what this machine offers."
            frames.send(sock, frames.INTERNAL_ERROR, json.dumps({"error": text}).encode())
            return
        random_state.reseed()
        launcher.Launcher(sock).serve()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            number = self._sandboxes.pop(pid, None)
            if number is not None:
                self._send({"ended": number, "status": status})
        if not self._isolation["pid"]:
            self._end_strays()

    def _end_strays(self) -> None:
        """Kill processes that ended sandboxes left behind: our children that we did not fork."""
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if int(pid) not in self._sandboxes:
                os.kill(int(pid), signal.SIGKILL)


def _arrange_descriptors(fds: list[int], view: int | None) -> socket.socket:
    """Move the sandbox's descriptors to their numbers, and close all others."""
    null = os.open(os.devnull, os.O_RDONLY)
    # First copies with high numbers, so that no source is overwritten before it is used.
    high = [_high_copy(fd) for fd in (null, fds[1], fds[2], fds[0], *(() if view is None else (view,)))]
    for target, fd in enumerate(high):
        os.dup2(fd, target, inheritable=target < _SANDBOX_FD)
    os.closerange(len(high), 65536)
    # Line buffering: a printed line is in the pipe, even if the process dies.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    return socket.socket(fileno=_SANDBOX_FD)


def _high_copy(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)


def main() -> NoReturn:
    linux.die_with_parent(signal.SIGKILL)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    settings = json.loads(control.recv(_PACKET_BYTES))
    isolation.enclose(settings["isolation"])
    sdk_support.install_finder()
    Zygote(control, settings).serve()


if __name__ == "__main__":
    main()
