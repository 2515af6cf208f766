"""Sandboxes that leave a device's memory and come back: by its driver, or by standing still."""

import asyncio
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from aliquot.live.device.drivers import Drivers
from aliquot.live.node.base import Status
from aliquot.live.node.device_queues import DeviceQueues
from aliquot.live.node.local_sandbox import LocalSandbox
from aliquot.live.node.states import GONE

log = structlog.get_logger(__name__)

NOT_OUT = "The sandbox could not be swapped out, and was ended."
NOT_IN = "The sandbox could not be swapped in, and was ended."


class SandboxSwapper:
    def __init__(
        self, drivers: Drivers, lanes: DeviceQueues, loop: asyncio.AbstractEventLoop, swapper: ThreadPoolExecutor
    ) -> None:
        """`swapper`: of one thread, so that what leaves a device does so before what comes."""
        self._drivers = drivers
        self._lanes = lanes
        self._loop = loop
        self._swapper = swapper

    def out(self, sandbox: LocalSandbox) -> None:
        if sandbox.cell is None:
            return
        if self._drivers.has_own_memory(sandbox.launch.place):
            self._out_of_memory(sandbox)
        elif not self._drivers.swap_out(sandbox.number):
            sandbox.cell.process.send_all(signal.SIGSTOP)

    def _out_of_memory(self, sandbox: LocalSandbox) -> None:
        place, swap = sandbox.launch.place, ("swap", sandbox.number)
        self._lanes.ending(place, swap)

        def done(ok: bool) -> None:
            try:
                if not ok:
                    _give_up(sandbox, NOT_OUT)
                elif sandbox.state != GONE and sandbox.cell is not None:
                    sandbox.cell.process.send_all(signal.SIGSTOP)
            finally:  # whatever became of that: others wait for the memory
                self._lanes.ended(place, swap)

        self._aside(lambda: self._drivers.swap_out(sandbox.number), done)

    def back(self, sandbox: LocalSandbox, then: Callable[[LocalSandbox], None]) -> None:
        """Then `then`, later."""
        if sandbox.cell is not None and self._drivers.has_own_memory(sandbox.launch.place):
            sandbox.cell.process.send_all(signal.SIGCONT)
            self._aside(
                lambda: self._drivers.swap_in(sandbox.number),
                lambda ok: then(sandbox) if ok else _give_up(sandbox, NOT_IN),
            )
            return
        if sandbox.cell is not None and not self._drivers.swap_in(sandbox.number):
            sandbox.cell.process.send_all(signal.SIGCONT)
        self._loop.call_soon(then, sandbox)

    def _aside(self, work: Callable[[], bool], then: Callable[[bool], None]) -> None:
        """What takes a while, in a thread; one after the other. What raises has not worked."""

        def settled(done: asyncio.Future[bool]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                log.error("a sandbox could not be swapped", exc_info=error)
            then(not done.cancelled() and error is None and done.result())

        self._loop.run_in_executor(self._swapper, work).add_done_callback(settled)


def _give_up(sandbox: LocalSandbox, why: str) -> None:
    if sandbox.state != GONE:
        sandbox.fail(Status.INTERNAL_ERROR, why)
