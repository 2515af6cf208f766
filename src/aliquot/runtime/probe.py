"""Try every layer of isolation on this machine, each in its own process, and print the results as JSON.

It is run by file path like the zygote: `python -I probe.py SETTINGS`. SETTINGS is a JSON object: uids (the first and
their number, or null), hidden (the data directory), walls (the layers of a confined zygote).
A layer that works has an empty text. For one that does not, the text says why.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Callable  # noqa: UP035 - Python 3.9 on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import frames, isolation, landlock, linux, mounts, network, seccomp, view_mount
    from .supervisor import PACKET_BYTES
    from .units import MIB
else:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from runtime import frames, isolation, landlock, linux, mounts, network, seccomp, view_mount
    from runtime.supervisor import PACKET_BYTES
    from runtime.units import MIB

_ZYGOTE_TIMEOUT_S = 20
_OUTSIDE = ("192.0.2.1", 80)  # an address for documentation, which no machine has
_CONNECT_TIMEOUT_S = 5


def attempt(trial: Callable[[], None]) -> str:
    """Run a trial in a child process. Return why it failed, or an empty text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            trial()
            os.write(writer, b"ok")
        except OSError as error:
            os.write(writer, (error.strerror or str(error)).encode()[:400])
        except BaseException as error:  # noqa: BLE001 - nothing may return into the parent's code
            traceback.print_exc()
            os.write(writer, f"{type(error).__name__}: {error}".encode()[:400])
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    said = os.read(reader, 500).decode(errors="replace")
    os.close(reader)
    return "" if said == "ok" else said or "the trial ended without a result"


class IsolationTrials:
    """One method for each layer of isolation. A method raises if the layer does not work."""

    def __init__(self, uids: list[int] | None, hidden: str, walls: dict[str, Any]) -> None:
        self.uids = uids
        self.hidden = hidden
        self.walls = walls

    def _privileges(self, flags: int = 0) -> None:
        """Enter the user namespace that a server without root needs for everything else."""
        mine = os.getuid(), os.getgid()
        if self.uids is None:
            linux.unshare(linux.CLONE_NEWUSER | flags)
            isolation.map_own_user(*mine)
        elif flags:
            linux.unshare(flags)

    def user(self) -> None:
        linux.unshare(linux.CLONE_NEWUSER)

    def mount(self) -> None:
        self._privileges(linux.CLONE_NEWNS)
        mounts.change_root(isolation.visible_paths([]), self.hidden)
        mounts.mount_scratch(os.getuid(), MIB, [])

    def pid(self) -> None:
        self._privileges(linux.CLONE_NEWNS)
        linux.unshare(linux.CLONE_NEWPID)
        self._raise_if(attempt(self._zygote))

    def _zygote(self) -> None:
        """Make a namespace inside another one and go back, as a zygote does for each sandbox."""
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)
        linux.unshare(linux.CLONE_NEWPID)
        failed = attempt(self._first_process)
        linux.enter_namespace(own, linux.CLONE_NEWPID)
        self._raise_if(failed)

    def _first_process(self) -> None:
        if os.getpid() != 1:
            raise OSError(0, "the first process of a pid namespace has another number than 1")
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        mounts.mount_proc()

    def _raise_if(self, failed: str) -> None:
        if failed:
            raise OSError(0, failed)

    def ipc(self) -> None:
        self._privileges()
        linux.unshare(linux.CLONE_NEWIPC | linux.CLONE_NEWUTS)

    def uid(self) -> None:
        if self.uids is None:
            raise OSError(0, "the server is not root")
        os.setgroups([])
        os.setresgid(self.uids[0], self.uids[0], self.uids[0])
        os.setresuid(self.uids[0], self.uids[0], self.uids[0])

    def landlock(self) -> None:
        if not landlock.version():
            raise OSError(0, "the kernel has no Landlock")
        linux.forbid_new_privileges()
        landlock.restrict([("/usr", landlock.READ)])
        try:
            list(Path("/etc").iterdir())
        except PermissionError:
            return
        raise OSError(0, "it restricts nothing")

    def seccomp(self) -> None:
        if not seccomp.is_known_machine():
            raise OSError(0, f"the numbers of {linux.MACHINE}'s system calls are not known here")
        linux.forbid_new_privileges()
        seccomp.install()
        try:
            linux.unshare(linux.CLONE_NEWUTS | linux.CLONE_NEWUSER)
        except PermissionError:
            return
        raise OSError(0, "it forbids nothing")

    def network(self) -> None:
        """Send to an address outside, in a namespace where it must arrive at the platform's socket."""
        if self.uids is None:
            raise OSError(0, "the server is not root")
        linux.unshare(linux.CLONE_NEWNET)
        gateway = network.make_gateway([ipaddress.ip_network("0.0.0.0/0")], [])
        with socket.create_connection(_OUTSIDE, timeout=_CONNECT_TIMEOUT_S):
            accepted, _ = gateway.listener.accept()
        if network.destination(accepted) != _OUTSIDE:
            raise OSError(0, "connections do not arrive with their destination")

    def confined(self) -> None:
        """Start a confined zygote without imports, and let it fork a sandbox."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.settimeout(_ZYGOTE_TIMEOUT_S)
        command = [sys.executable, "-I", str(Path(__file__).parent / "zygote.py"), str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, cwd="/")  # noqa: S603
        theirs.close()
        try:
            walls = {**self.walls, "landlock": not attempt(self.landlock), "seccomp": not attempt(self.seccomp)}
            mine.send(json.dumps({"imports": [], "isolation": walls}).encode())
            said = mine.recv(PACKET_BYTES)
            if json.loads(said or b"{}") != {"ready": True}:
                raise OSError(0, f"the zygote did not start: {said.decode() or _last_line(process)}")
            ours, sandbox = socket.socketpair()
            null = os.open(os.devnull, os.O_RDWR)
            request = {"fork": 1, "env": {"TMPDIR": "/tmp"}, "uid": None if self.uids is None else 2}  # noqa: S108
            limits = {"scratch_bytes": MIB, "processes": 10, "views": []}
            data = json.dumps({**request, **limits}).encode()
            socket.send_fds(mine, [data], [sandbox.fileno(), null, null])
            sandbox.close()
            said, fds, _, _ = socket.recv_fds(mine, PACKET_BYTES, 1)
            if not fds:
                raise OSError(0, f"no sandbox was forked: {said.decode() or _last_line(process)}")
            ours.settimeout(_ZYGOTE_TIMEOUT_S)
            ours.sendall(frames.REQUEST.pack(frames.RUN, 0, 2, 2) + b"{}{}")
            if not ours.recv(1):  # it answers that it has no function yet
                raise OSError(0, "the forked sandbox has ended")
        finally:
            process.kill()
            process.wait()

    def views(self) -> None:
        """Make a view outside and attach it inside a namespace, as for a sandbox."""
        if self.uids is not None:
            _, mount = view_mount.make()
        else:
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                view_mount.serve_in_namespace(theirs)
            theirs.close()
            _, mount = view_mount.ask(mine)
        self._privileges(linux.CLONE_NEWNS)
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        linux.attach_mount(mount, "/tmp")  # noqa: S108 - only in this namespace


def _last_line(process: subprocess.Popen[bytes]) -> str:
    process.kill()
    lines = process.communicate()[1].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it has ended"


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    trials = IsolationTrials(given["uids"], given["hidden"], given["walls"])
    names = ("user", "mount", "pid", "ipc", "uid", "landlock", "seccomp", "network", "confined", "views")
    found = {name: attempt(getattr(trials, name)) for name in names}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
