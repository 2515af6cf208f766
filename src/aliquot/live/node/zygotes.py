"""The zygotes of a node: one per profile, started when first needed, kept, and started again when one dies."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from aliquot.live.device.records import NO_ACCESS, DeviceAccess
from aliquot.live.node.base import Status
from aliquot.live.node.cell import Cell, EventLoop
from aliquot.runtime import frames

MAX_ZYGOTES = 32  # kept though nothing lives from them
_PACKET_BYTES = 65536
_SCRIPT = Path(frames.__file__).parent / "zygote.py"
# Nothing of the server's environment: its keys and settings are not the functions' business.
BARE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - each sandbox has its own there
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108
}


class ZygoteProfile(Struct, frozen=True):
    """What makes zygotes interchangeable."""

    python: str = sys.executable
    imports: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()  # what its sandboxes may read beside the system and the interpreter
    opening: DeviceAccess = NO_ACCESS  # to the device that its sandboxes are for
    views: bool = False  # its sandboxes see datasets


Ready = Callable[["ZygoteProcess"], None]
Failed = Callable[[Status, str], None]


class ZygoteProcess:
    """One zygote process and its control channel."""

    def __init__(self, profile: ZygoteProfile, walls: dict[str, Any], loop: EventLoop) -> None:
        self.alive = True
        self.views = profile.views
        self._loop = loop
        self._waiting: list[tuple[Ready, Failed]] | None = []  # None: ready
        self._forking: dict[int, Cell] = {}
        self._living: set[int] = set()
        self.blank: Cell | None = None  # kept ready for the next start
        self._outbox: list[tuple[bytes, tuple[int, ...]]] = []
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - its stderr, read when it dies
        # In its process from the first moment on: what is forked from it cannot be given another library.
        preload = {"LD_PRELOAD": profile.opening.preload} if profile.opening.preload else {}
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        self._control = mine
        with theirs:
            # On the loop's own thread, which lives as long as the server: the kernel ends a zygote when its parent
            # thread ends.
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                [profile.python, "-I", str(_SCRIPT), str(theirs.fileno())],
                env={**BARE_ENVIRONMENT, **preload},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                cwd="/",
                start_new_session=True,
            )
        self._send({"imports": profile.imports, "isolation": walls})
        loop.add_reader(mine.fileno(), self._readable)

    def when_ready(self, ready: Ready, failed: Failed) -> None:
        if self._waiting is None:
            ready(self)
        else:
            self._waiting.append((ready, failed))

    def fork(self, cell: Cell, fds: tuple[int, ...], settings: dict[str, Any]) -> None:
        """Have a cell forked with these descriptors; they are closed here when they are sent."""
        self._forking[cell.number] = cell
        self._living.add(cell.number)
        self._send({"fork": cell.number, **settings}, fds)

    @property
    def is_idle(self) -> bool:
        """No sandbox of it lives, and none is asked for."""
        spare = {self.blank.number} if self.blank is not None else set()
        return not self._waiting and self._living <= spare

    def kill(self) -> None:
        """With all its sandboxes."""
        if self.alive:
            self._die()

    def _send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        self._outbox.append((json.dumps(message).encode(), fds))
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._outbox:
                data, fds = self._outbox[0]
                socket.send_fds(self._control, [data], list(fds))
                del self._outbox[0]
                for fd in fds:
                    os.close(fd)
        except BlockingIOError:
            self._loop.add_writer(self._control.fileno(), self._flush)
        except OSError:
            pass  # it has died; the reader will learn it
        else:
            self._loop.remove_writer(self._control.fileno())

    def _readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, 4)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._die()
            return
        message = json.loads(data)
        if "forked" in message:
            self._forking.pop(message["forked"]).forked(_pid_here(fds[0]), fds[0])
        elif "ended" in message:
            self._living.discard(message["ended"])
        elif "unforked" in message:
            self._living.discard(message["unforked"])
            cell = self._forking.pop(message["unforked"])
            cell.never_forked(Status.INTERNAL_ERROR, f"The sandbox could not be forked: {message['why']}.")
        elif "ready" in message:
            waiting, self._waiting = self._waiting or [], None
            for ready, _failed in waiting:
                ready(self)
        elif "failed" in message:
            self._die(Status.DEVELOPER_ERROR, message["failed"])

    def _die(self, status: Status = Status.INTERNAL_ERROR, why: str = "") -> None:
        self.alive = False
        self._loop.remove_writer(self._control.fileno())
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._process.kill()
        self._process.wait()
        if not why:
            why = f"The runtime's process ended unexpectedly: {self._last_words()}"
        self._said.close()
        for _, fds in self._outbox:
            for fd in fds:
                os.close(fd)
        waiting, self._waiting = self._waiting or [], []
        for _ready, failed in waiting:
            failed(status, why)
        # Their fork was on its way; if it has happened they have died with the zygote.
        for cell in self._forking.values():
            cell.never_forked(status, why)

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read()[-4096:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"


class ZygotePool:
    def __init__(self, walls: Callable[[ZygoteProfile], dict[str, Any]], loop: EventLoop) -> None:
        self._loop = loop
        self._walls = walls
        self._zygotes: dict[ZygoteProfile, ZygoteProcess] = {}

    def __len__(self) -> int:
        return len(self._zygotes)

    def get(self, profile: ZygoteProfile) -> ZygoteProcess:
        zygote = self._zygotes.pop(profile, None)
        if zygote is None or not zygote.alive:
            self._make_room()
            zygote = ZygoteProcess(profile, self._walls(profile), self._loop)
        self._zygotes[profile] = zygote  # the last is the one used last
        return zygote

    def _make_room(self) -> None:
        """Profiles are tenants' to choose, and a zygote may be large: those that nothing lives from go first."""
        for profile, zygote in list(self._zygotes.items()):
            if not zygote.alive or (len(self._zygotes) >= MAX_ZYGOTES and zygote.is_idle):
                zygote.kill()
                del self._zygotes[profile]

    def stop(self) -> None:
        for zygote in self._zygotes.values():
            zygote.kill()
        self._zygotes.clear()


def _pid_here(pidfd: int) -> int:
    """The pid as this process sees it; the zygote may live in a namespace of its own."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    return -1
