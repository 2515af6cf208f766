"""One zygote process: starts it, sends it fork requests, and checks everything that it says."""

import asyncio
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from aliquot.core.units import GIB, MIB
from aliquot.live.device.records import NO_ACCESS, DeviceAccess
from aliquot.live.node.base import Status
from aliquot.live.node.cell import Cell
from aliquot.live.node.cgroups import SandboxCgroup
from aliquot.live.node.error_output import ErrorOutput
from aliquot.live.node.states import StartError
from aliquot.live.node.zygote_messages import UnexpectedMessageError, ZygoteMessage, pid_of_child, receive
from aliquot.runtime import frames

IMPORT_TIMEOUT_S = 60  # the minimum time that a zygote gets for its imports, even if no start waits for it
IMPORTS_GIVEN_UP = (
    "The imports of the action were ended after {} s, when no call waited for them any more. Raise its limit "
    "`timeout`, or declare fewer `imports`."
)
ENDED = "The runtime's process ended unexpectedly: {}"
OUT_OF_MEMORY = "The imports exhausted the memory of {} MiB that they may use. Import less, or inside the function."
_UNEXPECTED = "The runtime's process was ended: {}."
MIN_COUNTED_BYTES = 256 * MIB  # of a zygote that is still importing
MAX_ZYGOTE_BYTES = GIB  # of memory, for the imports and the files that they write to /tmp
_SCRIPT = Path(frames.__file__).parent / "zygote.py"
_MAX_REASON_CHARACTERS = 2000
# Sandboxes inherit nothing from the server's environment, which may hold keys.
BARE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",  # noqa: S108 - each sandbox has its own there
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108
}
log = structlog.get_logger(__name__)


class ZygoteProfile(Struct, frozen=True):
    """The properties of a zygote. Zygotes with equal profiles are interchangeable."""

    python: str = sys.executable
    imports: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()  # paths that its sandboxes may read beside the system and the interpreter
    access: DeviceAccess = NO_ACCESS  # what its sandboxes need to use their device
    views: tuple[str, ...] = ()  # where its sandboxes see datasets and volumes


class ZygoteShare(Struct, frozen=True):
    """The resources of one zygote."""

    slot: int = 0
    uid: int | None = None  # as its own namespace numbers it, or None for the server's or the namespace's root
    cgroup: SandboxCgroup | None = None

    @property
    def ran_out_of_memory(self) -> bool:
        return self.cgroup is not None and self.cgroup.ran_out_of_memory()


NO_SHARE = ZygoteShare()


class ZygoteProcess:
    """One zygote process and its control socket."""

    def __init__(
        self,
        profile: ZygoteProfile,
        walls: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        share: ZygoteShare = NO_SHARE,
        ended: Callable[[ZygoteShare], None] = lambda _: None,
    ) -> None:
        """`ended` is called when the process has been killed, with its share."""
        self.alive = True
        self.failure: StartError | None = None  # why it ended, unless it was killed
        self.ended_s = 0.0  # the event loop's time
        self.views = profile.views
        self.wanted_cells = 0  # that are to be kept ready
        self._loop = loop
        self._share = share
        self._tell_ended = ended
        self._own_namespace = bool(walls["pid"])
        self._ready = False
        self._started_s = loop.time()
        self._waiting: list[asyncio.Future[None]] = []
        self._forking: dict[int, Cell] = {}
        self._living: dict[int, Cell] = {}  # the cells that have not ended
        self._ready_cells: deque[Cell] = deque()
        self._outbox: list[tuple[bytes, tuple[int, ...]]] = []
        self._errors = ErrorOutput(loop)
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
                stderr=self._errors.write_end,
                cwd="/",
                start_new_session=True,
            )
        self._errors.read()
        procs = share.cgroup.open_procs() if share.cgroup is not None else ()
        self._send({"imports": profile.imports, "isolation": {**walls, "zygote_uid": share.uid}}, procs)
        loop.add_reader(mine.fileno(), self.read)

    @property
    def is_ready(self) -> bool:
        """True from the moment when it can fork."""
        return self._ready

    async def ready(self) -> None:
        """Wait until the zygote can fork. Raises `StartError` when it fails before that.

        Every start waits for its own time and is cancelled then. A zygote for which no start waits any more is ended,
        but not before `IMPORT_TIMEOUT_S`, because the next start may profit from its imports.
        """
        if self.failure is not None:
            raise self.failure
        if self._ready:
            return
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            left_s = self._started_s + IMPORT_TIMEOUT_S - self._loop.time()
            self._loop.call_later(max(0, left_s), self._end_unless_wanted)
            raise

    def _end_unless_wanted(self) -> None:
        if self.alive and not self._ready and all(waiter.done() for waiter in self._waiting):
            self._die(StartError(Status.DEVELOPER_ERROR, IMPORTS_GIVEN_UP.format(IMPORT_TIMEOUT_S)), failed=True)

    def has_crashed(self) -> bool:
        """Return whether the zygote could fork, and then ended without being told to and with memory left."""
        if self.alive:  # as far as the event loop has heard
            return self._ready and (self._has_hung_up() or self._process.poll() is not None)
        return self._ready and self.failure is not None and self.failure.status == Status.INTERNAL_ERROR

    def _has_hung_up(self) -> bool:
        """Return whether the other end of the control socket is closed, which comes before the end of sandboxes."""
        poll = select.poll()
        poll.register(self._control, 0)
        return bool(poll.poll(0))

    @property
    def ready_cells(self) -> int:
        """The number of cells that are kept for the next starts."""
        while self._ready_cells and self._ready_cells[0].has_ended:
            self._ready_cells.popleft()
        return len(self._ready_cells)

    @property
    def is_making_cell(self) -> bool:
        """True when one of these cells is not ready yet."""
        return any(not cell.is_ready and not cell.has_ended for cell in self._ready_cells)

    def keep_cell(self, cell: Cell) -> None:
        """Keep a cell ready for a later start."""
        self._ready_cells.append(cell)

    def take_ready_cell(self) -> Cell | None:
        return self._ready_cells.popleft() if self._ready_cells else None

    def fork(self, cell: Cell, fds: tuple[int, ...], settings: dict[str, Any]) -> None:
        """Fork a cell's process with these descriptors, which are closed here when they have been sent."""
        self._forking[cell.number] = cell
        self._living[cell.number] = cell
        self._send({"fork": cell.number, **settings}, fds)

    def cell_ended(self, cell: Cell) -> None:
        """Forget a cell whose process has ended or was never forked."""
        self._living.pop(cell.number, None)

    @property
    def used_bytes(self) -> int:
        """The memory in use, where it is counted, and while it imports at least what imports may well need."""
        used = 0
        if self._share.cgroup is not None:
            with contextlib.suppress(OSError):  # the group is being removed
                used = self._share.cgroup.used_bytes()
        return used if self._ready else max(used, MIN_COUNTED_BYTES)

    @property
    def is_awaited(self) -> bool:
        """True when a start waits for it."""
        return not all(waiter.done() for waiter in self._waiting)

    @property
    def cells(self) -> list[Cell]:
        """The cells that have not ended, those that are kept ready included."""
        return list(self._living.values())

    @property
    def is_idle(self) -> bool:
        """True when no sandbox of the zygote runs and no start waits for it."""
        spare = {cell.number for cell in self._ready_cells}
        return not self.is_awaited and self._living.keys() <= spare

    def kill(self, why: StartError | None = None) -> None:
        """Kill the zygote with all its sandboxes. Starts that wait for it fail with `why`, if it is given."""
        if self.alive:
            self._die(why)

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

    def read(self) -> None:
        """Act on a message of the zygote, if one has arrived and the zygote is alive."""
        if not self.alive:
            return
        try:
            message = receive(self._control)
            if message is None:
                self._die(None, failed=True)
            else:
                self._take(message)
        except BlockingIOError:
            return
        except UnexpectedMessageError as error:
            log.warning("zygote killed", why=str(error))
            self._die(StartError(Status.DEVELOPER_ERROR, _UNEXPECTED.format(error)), failed=True)

    def _take(self, message: ZygoteMessage) -> None:
        """Act on a message. Raises `UnexpectedMessageError` for one that makes no sense now."""
        if message.forked is not None:
            self._take_fork(message.forked, message.pidfd)
        elif message.unforked is not None:
            cell = self._known(message.unforked)
            why = message.why[:_MAX_REASON_CHARACTERS]
            cell.never_forked(Status.INTERNAL_ERROR, f"The sandbox could not be forked: {why}.")
        elif message.failed is not None:
            text = message.failed[:_MAX_REASON_CHARACTERS]
            self._die(StartError(Status.DEVELOPER_ERROR, text), failed=True)
        elif self._ready:
            raise UnexpectedMessageError("it was ready twice")
        else:
            self._ready = True
            for waiter in self._take_waiting():
                waiter.set_result(None)

    def _known(self, number: int) -> Cell:
        cell = self._forking.pop(number, None)
        if cell is None:
            raise UnexpectedMessageError(f"it spoke about a fork {number} that nobody has requested")
        return cell

    def _take_fork(self, number: int, pidfd: int) -> None:
        try:
            pid = pid_of_child(pidfd, self._process.pid, own_namespace=self._own_namespace)
            cell = self._known(number)
        except UnexpectedMessageError:
            os.close(pidfd)
            if self._process.poll() is None:
                raise
            self._die(None, failed=True)  # its children have another parent by now
            return
        cell.forked(pid, pidfd)

    def _die(self, why: StartError | None, *, failed: bool = False) -> None:
        """End the process and fail all that waits for it. `failed` says that it is the zygote's own fault."""
        self.alive = False
        self.ended_s = self._loop.time()
        self._loop.remove_writer(self._control.fileno())
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._process.kill()
        for cell in self._living.values():
            cell.process.thaw()  # otherwise a frozen one would not end, and its zygote with it
        self._process.wait()
        self._errors.close()
        if why is None:
            why = self._reason()
        if failed:
            self.failure = why
        for _, fds in self._outbox:
            for fd in fds:
                os.close(fd)
        for waiter in self._take_waiting():
            waiter.set_exception(why)
        # Cells whose fork has not been reported: if they were forked, they have ended with the zygote.
        for cell in self._forking.values():
            cell.never_forked(why.status, str(why))
        self._tell_ended(self._share)

    def _take_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return [waiter for waiter in waiting if not waiter.done()]

    def _reason(self) -> StartError:
        if self._share.ran_out_of_memory:
            return StartError(Status.DEVELOPER_ERROR, OUT_OF_MEMORY.format(MAX_ZYGOTE_BYTES // MIB))
        last_words = self._errors.last_line() or f"exit status {self._process.returncode}"
        return StartError(Status.INTERNAL_ERROR, ENDED.format(last_words))
