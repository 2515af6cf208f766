"""Moves running sandboxes from one virtual device to another, process by process, in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

import structlog
from msgspec.structs import replace

from aliquot.core.places import Place
from aliquot.live.device.base import DeviceMove
from aliquot.live.device.drivers import Drivers
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.states import GONE

log = structlog.get_logger(__name__)

MAX_ROUNDS = 20  # processes that are started meanwhile are moved in another round
CANNOT = "its driver cannot move it"
STARTS_MORE = "it starts processes faster than they can be moved"
Report = Callable[[str | None], None]  # with None if it has moved, or why not; not called if the sandbox has ended


class SandboxMover:
    """Moves sandboxes. A move takes some 10 ms for each process and controller, in which its runs go on."""

    def __init__(self, drivers: Drivers, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._drivers = drivers
        self._loop = loop
        self._executor = executor

    def move(self, sandbox: LocalSandbox, place: Place, then: Report) -> None:
        """Move a sandbox, and call `then` on the event loop, later."""
        found = self._drivers.begin_move(sandbox.number, place)
        if found is None:
            self._loop.call_soon(then, CANNOT)
            return
        sandbox.moving = True

        def finish(done: "asyncio.Future[str | None]") -> None:
            sandbox.moving = False
            why = self._result(done)
            if sandbox.state == GONE:
                found.abort(())
                return
            if why is not None:
                log.warning("a sandbox could not be moved", sandbox=sandbox.number, why=why)
                found.abort(sandbox.cell.process.pids())
            else:
                self._arrive(sandbox, place, found)
            then(why)

        self._loop.run_in_executor(self._executor, _enter, found, sandbox).add_done_callback(finish)

    def _arrive(self, sandbox: LocalSandbox, place: Place, found: DeviceMove) -> None:
        directory, process = found.finish(), sandbox.cell.process
        self._drivers.moved(sandbox.number, place)
        sandbox.launch = replace(sandbox.launch, place=place)
        if process.cgroup is not None:
            if directory is not None:
                process.cgroup.move(directory)
            self._drivers.count_memory(sandbox.number, process.cgroup.usage)

    @staticmethod
    def _result(done: "asyncio.Future[str | None]") -> str | None:
        if done.cancelled():
            return "the server stops"
        error = done.exception()
        return done.result() if error is None else str(error)


def _enter(found: DeviceMove, sandbox: LocalSandbox) -> str | None:
    """Move all processes. Those that they start meanwhile are in the old group, so look again. Blocks."""
    entered: dict[int, None] = {}
    for _ in range(MAX_ROUNDS):
        pids = [pid for pid in sandbox.cell.process.pids() if pid not in entered]
        if not pids:
            return None
        found.enter(pids)
        entered.update(dict.fromkeys(pids))
    return STARTS_MORE
