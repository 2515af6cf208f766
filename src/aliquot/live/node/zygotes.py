"""The zygotes of a node: one process per profile, started at its first use and restarted when it has ended."""

import asyncio
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
from aliquot.live.node.cell import Cell
from aliquot.live.node.states import StartError
from aliquot.runtime import frames

MAX_ZYGOTES = 32  # above this number, zygotes without sandboxes are ended
_MAX_ATTEMPTS = 3
_PACKET_BYTES = 65536
_ENDED = "The runtime's process ended unexpectedly: {}"
_SCRIPT = Path(frames.__file__).parent / "zygote.py"
# Sandboxes inherit nothing from the server's environment, which may hold keys.
BARE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - each sandbox has its own there
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108
}


class ZygoteProfile(Struct, frozen=True):
    """The properties of a zygote. Zygotes with equal profiles are interchangeable."""

    python: str = sys.executable
    imports: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()  # paths that its sandboxes may read beside the system and the interpreter
    access: DeviceAccess = NO_ACCESS  # what its sandboxes need to use their device
    views: bool = False  # its sandboxes see datasets


class ZygoteProcess:
    """One zygote process and its control socket."""

    def __init__(self, profile: ZygoteProfile, walls: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.alive = True
        self.views = profile.views
        self._loop = loop
        self._ready = False
        self._waiting: list[asyncio.Future[None]] = []
        self._forking: dict[int, Cell] = {}
        self._living: set[int] = set()  # numbers of the cells that have not ended
        self._ready_cell: Cell | None = None
        self._outbox: list[tuple[bytes, tuple[int, ...]]] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - read when the zygote ends
        # The library must be loaded when the process starts. Forked processes inherit it.
        preload = {"LD_PRELOAD": profile.access.preload} if profile.access.preload else {}
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        self._control = mine
        with theirs:
            # Start it from the event loop's thread: the kernel kills a zygote when the thread that started it ends.
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                [profile.python, "-I", str(_SCRIPT), str(theirs.fileno())],
                env={**BARE_ENVIRONMENT, **preload},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                cwd="/",
                start_new_session=True,
            )
        self._send({"imports": profile.imports, "isolation": walls})
        loop.add_reader(mine.fileno(), self._readable)

    async def ready(self) -> None:
        """Wait until the zygote can fork. Raises `StartError` when it fails before that."""
        if not self._ready:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    @property
    def needs_cell(self) -> bool:
        return self._ready_cell is None or self._ready_cell.has_ended

    def keep_cell(self, cell: Cell) -> None:
        """Keep a cell ready for the next start."""
        self._ready_cell = cell

    def take_ready_cell(self) -> Cell | None:
        cell, self._ready_cell = self._ready_cell, None
        return cell

    def fork(self, cell: Cell, fds: tuple[int, ...], settings: dict[str, Any]) -> None:
        """Fork a cell's process with these descriptors, which are closed here when they have been sent."""
        self._forking[cell.number] = cell
        self._living.add(cell.number)
        self._send({"fork": cell.number, **settings}, fds)

    @property
    def is_idle(self) -> bool:
        """True when no sandbox of the zygote runs and no start waits for it."""
        spare = {self._ready_cell.number} if self._ready_cell is not None else set()
        return all(waiter.done() for waiter in self._waiting) and self._living <= spare

    def kill(self) -> None:
        """Kill the zygote with all its sandboxes."""
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
            pass  # the zygote has ended; reading will find it out
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
            self._ready = True
            for waiter in self._take_waiting():
                waiter.set_result(None)
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
            why = _ENDED.format(self._last_error_line())
        self._stderr.close()
        for _, fds in self._outbox:
            for fd in fds:
                os.close(fd)
        for waiter in self._take_waiting():
            waiter.set_exception(StartError(status, why))
        # Cells whose fork has not been reported: if they were forked, they have ended with the zygote.
        for cell in self._forking.values():
            cell.never_forked(status, why)

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return [waiter for waiter in waiting if not waiter.done()]

    def _last_error_line(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read()[-4096:].decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"


class ZygotePool:
    """The zygotes by profile, the least recently used first."""

    def __init__(self, walls: Callable[[ZygoteProfile], dict[str, Any]], loop: asyncio.AbstractEventLoop) -> None:
        """`walls` returns the isolation settings of a profile."""
        self._loop = loop
        self._walls = walls
        self._zygotes: dict[ZygoteProfile, ZygoteProcess] = {}
        self._stopped = False

    def __len__(self) -> int:
        return len(self._zygotes)

    def get(self, profile: ZygoteProfile) -> ZygoteProcess:
        """Return the zygote of a profile, and start it if there is none. Raises `StartError` after `stop`."""
        if self._stopped:  # a task that waited for a killed zygote must not start another one
            raise StartError(Status.INTERNAL_ERROR, "The node is stopping.")
        zygote = self._zygotes.pop(profile, None)
        if zygote is None or not zygote.alive:
            self._evict()
            zygote = ZygoteProcess(profile, self._walls(profile), self._loop)
        self._zygotes[profile] = zygote  # the most recently used is last
        return zygote

    async def ready(self, profile: ZygoteProfile) -> ZygoteProcess:
        """Return a zygote of the profile that can fork. Raises `StartError`."""
        for _ in range(_MAX_ATTEMPTS):
            zygote = self.get(profile)
            await zygote.ready()
            if zygote.alive:  # otherwise it has ended, or was evicted, before this task continued
                return zygote
        raise StartError(Status.INTERNAL_ERROR, _ENDED.format("it was ready before"))

    def _evict(self) -> None:
        """End idle zygotes above the limit. Tenants choose the profiles, and a zygote may be large."""
        for profile, zygote in list(self._zygotes.items()):
            if not zygote.alive or (len(self._zygotes) >= MAX_ZYGOTES and zygote.is_idle):
                zygote.kill()
                del self._zygotes[profile]

    def stop(self) -> None:
        """End all zygotes. No other one is started from now on."""
        self._stopped = True
        for zygote in self._zygotes.values():
            zygote.kill()
        self._zygotes.clear()


def _pid_here(pidfd: int) -> int:
    """Return the pid in this process's namespace. The zygote may have a pid namespace of its own."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    return -1
