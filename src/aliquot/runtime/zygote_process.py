"""The process that has loaded the imports of a profile, and forks a sandbox for each request."""

from __future__ import annotations

import base64  # noqa: F401 - modules that every sandbox needs are loaded once here
import contextlib
import fcntl
import gc
import importlib
import io  # noqa: F401
import json
import os
import pickle  # noqa: F401
import select
import socket
import sys
import time
import traceback
import zipfile  # noqa: F401
from typing import Any, Callable, NamedTuple, NoReturn, TextIO  # noqa: UP035 - Python 3.9 on

from . import confinement, frames, isolation, launcher, linux, random_state, seccomp, supervisor
from .borrowed_memory import RunChild, child_runner
from .supervisor import MAX_DESCRIPTORS, PACKET_BYTES

_MAX_FORK_ATTEMPTS = 100
_FORK_PAUSE_S = 0.02
_SANDBOX_FD = 3  # the sandbox's socket
EXTRA_FD = 4  # the views until they are attached, or the preparer until it has ended


class StandardStreams(NamedTuple):
    """The files on the descriptors 0, 1 and 2 of every sandbox. The zygote does not use them."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    replaced: tuple[TextIO | None, ...]  # the zygote's own. Closing them would take time in every sandbox


class Zygote:
    """Loads the imports, and forks a sandbox for each request."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._settings = settings
        self._isolation = settings["isolation"]
        self._streams: StandardStreams

    def serve(self) -> NoReturn:
        failure = self._load()
        if failure:
            self._send({"failed": failure})
            os._exit(0)  # no thread and no exit handler of an import may delay it
        self._streams = open_streams()
        # The loaded objects stay: a collection in a sandbox must not touch their pages, which would copy them.
        gc.collect()
        gc.freeze()
        if self._isolation["seccomp"]:
            seccomp.program(seccomp.AFTER_ZYGOTE if self._isolation["confined"] else seccomp.SANDBOX)
        self._prepare()
        self._send({"ready": True})
        self._loop()

    def _prepare(self) -> None:
        """Do what is left between imports and the first request."""

    def _loop(self) -> NoReturn:
        raise NotImplementedError

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

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        data, fds, _, _ = socket.recv_fds(self._control, PACKET_BYTES, MAX_DESCRIPTORS)
        if not data:
            os._exit(0)  # the server has ended, and the kernel ends the sandboxes
        return json.loads(data), fds

    def _in_child(self, do: Callable[..., None], *args: object) -> NoReturn:
        try:
            do(*args)
        except BaseException:  # noqa: BLE001 - nothing may return into the zygote's loop
            traceback.print_exc()
        finally:
            os._exit(70)

    def _serve_sandbox(self, sock: socket.socket, isolate: Callable[[], None]) -> None:
        try:
            isolate()
        except OSError as error:
            text = f"The sandbox could not be isolated: {error}. `aliquot doctor` shows what this machine offers."
            frames.send(sock, frames.INTERNAL_ERROR, json.dumps({"error": text}).encode())
            return
        random_state.reseed()
        launcher.Launcher(sock).serve()


class ConfinedZygote(Zygote):
    """A zygote without privileges. A preparer makes the namespaces of each sandbox (`supervisor.py`).

    A process can enter a user namespace only for good, and a pid namespace only for its children. So an intermediate
    process does both, and forks the sandbox. It uses the zygote's memory, which waits meanwhile: a fork of large
    imports takes milliseconds.
    """

    def _loop(self) -> NoReturn:
        self._receive()  # from now on no child is taken for one of the imports
        run_child = child_runner()
        # The intermediate process receives the request, so the imports never have its descriptors.
        requests = select.poll()
        requests.register(self._control, select.POLLIN)
        while True:
            requests.poll()
            self._run_child(run_child)

    def _run_child(self, run_child: RunChild) -> None:
        """Run the intermediate process. Others that imports left behind may have to end first, if there were many."""
        for attempt in range(_MAX_FORK_ATTEMPTS):
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            try:
                run_child(self._serve_request)
            except BlockingIOError:
                if attempt == _MAX_FORK_ATTEMPTS - 1:
                    raise
                time.sleep(_FORK_PAUSE_S)
            else:
                return

    def _serve_request(self) -> None:
        try:
            self._fork_sandbox()
        except BaseException:  # noqa: BLE001 - nothing may return into the zygote's loop
            traceback.print_exc()

    def _fork_sandbox(self) -> None:
        """Enter the sandbox's control groups and namespaces, and fork it as the first process of a pid namespace."""
        request, (preparer, *fds) = self._receive()
        for procs in fds[3:]:
            os.write(procs, b"0")
        confinement.enter_spaces(self._isolation, supervisor.receive_spaces(preparer))
        if os.fork() == 0:
            self._in_child(self._serve_prepared, request, preparer, fds)

    def _serve_prepared(self, request: dict[str, Any], preparer: int, fds: list[int]) -> None:
        linux.set_dumpable()
        supervisor.show_process(preparer)
        sock = arrange_descriptors(fds[:3], [preparer], self._streams)
        set_environment(request["env"])
        self._serve_sandbox(sock, lambda: self._isolate(request))

    def _isolate(self, request: dict[str, Any]) -> None:
        isolation.drop_privileges(self._isolation, request, own_user_namespace=True)
        supervisor.wait_for_mounts(EXTRA_FD)
        isolation.restrict_calls(self._isolation, request)


def open_streams() -> StandardStreams:
    """Open the standard streams of sandboxes once, which takes longer than the rest of a sandbox's descriptors."""
    reader, writer = os.pipe()
    own = [(fd, _high_copy(fd)) for fd in (1, 2)]
    for fd, _ in own:
        os.dup2(writer, fd)  # a sandbox has pipes there, and a stream remembers whether it can seek
    # Line buffering: a printed line is in the pipe, even if the process dies.
    stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    stdout, stderr = (open(fd, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False) for fd, _ in own)  # noqa: SIM115
    for fd, copy in own:
        os.dup2(copy, fd)
    for fd in (reader, writer, *(copy for _, copy in own)):
        os.close(fd)
    own_streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return StandardStreams(stdin, stdout, stderr, own_streams)


def set_environment(variables: dict[str, str]) -> None:
    """Set environment variables. Most have the same value in the zygote, and a change would copy pages."""
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def arrange_descriptors(fds: list[int], extra: list[int], streams: StandardStreams) -> socket.socket:
    """Move the sandbox's descriptors to their numbers, and close all others."""
    null = os.open(os.devnull, os.O_RDONLY)
    # First copies with high numbers, so that no source is overwritten before it is used.
    high = [_high_copy(fd) for fd in (null, fds[1], fds[2], fds[0], *extra)]
    for target, fd in enumerate(high):
        os.dup2(fd, target, inheritable=target < _SANDBOX_FD)
    os.closerange(len(high), 65536)
    sys.stdin, sys.stdout, sys.stderr = streams[:3]
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc, assignment]
    return socket.socket(fileno=_SANDBOX_FD)


def _high_copy(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)
