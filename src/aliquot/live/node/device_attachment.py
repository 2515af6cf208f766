"""Attach sandboxes to their part of a device: control groups that divide the processors, and counters of memory."""

import asyncio
from typing import Protocol

from aliquot.live.device.drivers import Drivers
from aliquot.live.node.base import Launch
from aliquot.live.node.cell import Cell
from aliquot.live.node.executor_seats import SeatCell
from aliquot.live.node.states import GONE

CHECK_DELAY_S = 0.05  # until the server checks that a sandbox has entered its CPU group


class AttachedProcess(Protocol):
    """A sandbox with a process of its own, or an executor."""

    number: int
    launch: Launch
    cell: Cell
    state: int


class DeviceAttachment:
    """Attaches the processes of sandboxes, or lets them enter their CPU group themselves.

    Moving another process into a group of version 1 takes 8 to 15 ms, in which no other group can be made or entered.
    A process of one thread enters a group itself in less than 0.1 ms. So the launcher does, before it loads any code.
    """

    def __init__(self, drivers: Drivers, loop: asyncio.AbstractEventLoop) -> None:
        self._drivers = drivers
        self._loop = loop

    def before_init(self, sandbox: AttachedProcess) -> int | None:
        """Attach a sandbox that has a slice of the processors, or have it attached soon.

        Returns a descriptor through which the process enters its CPU group, if there is one. The caller closes it.
        """
        cell = sandbox.cell
        if isinstance(cell, SeatCell):
            return None  # its executor was attached
        if self._drivers.slices_processors(sandbox.launch.place):
            cell.on_fork(lambda: self._attach(sandbox))
            return None
        group = self._drivers.open_group(sandbox.number)
        # Not now: the init does not wait for a weight. But a device must know its processes before it swaps them out.
        is_urgent = group is None or self._drivers.has_own_memory(sandbox.launch.place)
        cell.on_fork(lambda: self._attach_later(sandbox, 0 if is_urgent else CHECK_DELAY_S))
        return group

    def _attach_later(self, sandbox: AttachedProcess, delay_s: float) -> None:
        self._loop.call_later(delay_s, self._attach, sandbox)

    def _attach(self, sandbox: AttachedProcess) -> None:
        """Put the sandbox's processes, which now exist, in the control groups in which they are not yet."""
        if sandbox.state == GONE:
            return
        process = sandbox.cell.process
        directory = self._drivers.attach(sandbox.number, process.pids())
        if process.cgroup is not None:
            if directory is not None:
                process.cgroup.move(directory)
            self._drivers.count_memory(sandbox.number, process.cgroup.usage)
