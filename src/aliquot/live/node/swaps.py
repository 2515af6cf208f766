"""Swaps sandboxes out of a device's memory and in again. A sandbox that is swapped out is frozen."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from aliquot.live.device.drivers import Drivers
from aliquot.live.node.base import Status
from aliquot.live.node.device_queues import DeviceQueues
from aliquot.live.node.kernel_sandbox import GraphSandbox
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.states import GONE

log = structlog.get_logger(__name__)

NOT_OUT = "The sandbox could not be swapped out, and was ended."
NOT_IN = "The sandbox could not be swapped in, and was ended."


class SandboxSwapper:
    def __init__(
        self, drivers: Drivers, queues: DeviceQueues, loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor
    ) -> None:
        """The executor has one thread, so that one sandbox leaves a device before the next one enters it."""
        self._drivers = drivers
        self._queues = queues
        self._loop = loop
        self._executor = executor

    def swap_out(self, sandbox: LocalSandbox) -> None:
        if isinstance(sandbox, GraphSandbox) and self._unload(sandbox):
            return
        if self._drivers.has_own_memory(sandbox.launch.place):
            self._copy_out(sandbox)
        else:
            self._drivers.swap_out(sandbox.number)
            sandbox.cell.process.freeze()

    def _unload(self, sandbox: GraphSandbox) -> bool:
        """Have a graph's executor drop what stays on the device between calls. The process serves other graphs, too."""
        place, swap = sandbox.launch.place, ("swap", sandbox.number)

        def done(ok: bool) -> None:
            self._queues.end_release(place, swap)
            if not ok:
                sandbox.fail(Status.INTERNAL_ERROR, NOT_OUT)
            sandbox.cell.process.freeze()

        self._queues.begin_release(place, swap)
        if sandbox.move(load=False, then=done):
            return True
        self._queues.end_release(place, swap)
        return False

    def _copy_out(self, sandbox: LocalSandbox) -> None:
        """Move the memory in a thread. The sandbox's own driver does it, so the sandbox must not be frozen yet."""
        place, swap = sandbox.launch.place, ("swap", sandbox.number)
        self._queues.begin_release(place, swap)
        sandbox.moving = True
        sandbox.cell.process.thaw()

        def done(ok: bool) -> None:
            sandbox.moving = False
            try:
                if not ok:
                    sandbox.fail(Status.INTERNAL_ERROR, NOT_OUT)
                elif sandbox.state != GONE:
                    sandbox.cell.process.freeze()
            finally:  # others wait for the memory, even if this fails
                self._queues.end_release(place, swap)

        self._run_in_thread(lambda: self._drivers.swap_out(sandbox.number), done)

    def swap_in(self, sandbox: LocalSandbox, then: Callable[[LocalSandbox], None]) -> None:
        """Let the sandbox go on, and call `then` later, when its memory is on the device again."""
        sandbox.cell.process.thaw()
        if isinstance(sandbox, GraphSandbox):

            def loaded(ok: bool) -> None:
                if ok:
                    then(sandbox)
                else:
                    sandbox.fail(Status.INTERNAL_ERROR, NOT_IN)

            if sandbox.move(load=True, then=loaded):
                return
        if not self._drivers.has_own_memory(sandbox.launch.place):
            self._drivers.swap_in(sandbox.number)
            self._loop.call_soon(then, sandbox)
            return
        sandbox.moving = True

        def done(ok: bool) -> None:
            sandbox.moving = False
            if ok:
                then(sandbox)
            else:
                sandbox.fail(Status.INTERNAL_ERROR, NOT_IN)

        self._run_in_thread(lambda: self._drivers.swap_in(sandbox.number), done)

    def _run_in_thread(self, work: Callable[[], bool], then: Callable[[bool], None]) -> None:
        """Run `work` in the executor's thread and pass its result to `then`. An exception counts as False."""

        def finish(done: asyncio.Future[bool]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                log.error("a sandbox could not be swapped", exc_info=error)
            then(not done.cancelled() and error is None and done.result())

        self._loop.run_in_executor(self._executor, work).add_done_callback(finish)
