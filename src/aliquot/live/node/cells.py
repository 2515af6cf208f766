"""A pool of cells: some are kept ready for each zygote, so that a start waits neither for fork nor for isolation."""

import asyncio
import os
from collections.abc import Callable

from aliquot.live.node.cell import Cell, ProcessHandle
from aliquot.live.node.network.client import SandboxNetworks
from aliquot.live.node.sandbox_resources import SandboxResources
from aliquot.live.node.sandbox_views import ViewMounts
from aliquot.live.node.zygote_process import ZygoteProcess
from aliquot.runtime.mounts import VOLUMES

MAX_VOLUME_FILE_BYTES = 2**60  # a volume has a size of its own
MAX_READY_CELLS = 4  # of a zygote from which sandboxes were started


class CellPool:
    def __init__(
        self,
        resources: SandboxResources,
        networks: SandboxNetworks,
        ended: Callable[[Cell], None],
        loop: asyncio.AbstractEventLoop,
        max_cells: int,
    ) -> None:
        """`ended` is called for each cell when its process has ended. Above `max_cells` none is kept ready."""
        self._max_cells = max_cells
        self._resources = resources
        self._networks = networks
        self._tell_ended = ended
        self._loop = loop
        self._mounts = ViewMounts()
        self._cells: dict[int, Cell] = {}
        self._zygotes: dict[int, ZygoteProcess] = {}  # by number of a cell
        self._last = 0
        self._none_left: asyncio.Future[None] | None = None  # set when the pool shuts down

    def take(self, zygote: ZygoteProcess, tenant: str, memory_bytes: int) -> tuple[Cell, int | None]:
        """Take the zygote's ready cell, or make one, and limit its memory. Raises `OSError`.

        Returns the cell, and the limit that its process has to set for itself, if there is no control group for it.
        """
        cell = zygote.take_ready_cell()
        if cell is None or cell.has_ended or cell.process.is_over():
            cell = self._make(zygote)
        self._networks.assign(cell.number, tenant)
        try:
            return cell, self._resources.limit_memory(cell, memory_bytes)
        except OSError:
            cell.kill()
            raise

    def keep_ready(self, zygote: ZygoteProcess, count: int = 1) -> None:
        """Have cells ready for the next starts from this zygote, from now on as many as were ever asked for.

        One is made after the other, so that the first is ready soon and starts have to compete with one only.
        """
        zygote.wanted_cells = max(count, zygote.wanted_cells)
        if zygote.is_making_cell or zygote.ready_cells >= zygote.wanted_cells or not (zygote.alive and self._may_keep):
            return
        try:
            cell = self._make(zygote)
        except OSError:
            return  # the next start reports it, if the reason persists
        zygote.keep_cell(cell)
        cell.on_ready(lambda: self.keep_ready(zygote))

    @property
    def _may_keep(self) -> bool:
        return self._none_left is None and len(self._cells) < self._max_cells

    def _make(self, zygote: ZygoteProcess) -> Cell:
        self._last += 1
        process, settings = self._resources.allocate(self._last, self._loop)
        fds: tuple[int, ...] = ()
        cell: Cell | None = None
        try:
            networks, crashed = self._networks.are_own, zygote.has_crashed
            cell = Cell(self._last, process, self._ended, own_network=networks, zygote_crashed=crashed)
            fds = cell.take_process_ends()
            fds += process.cgroup.open_procs() if process.cgroup else ()
            for place in zygote.views:
                view, mount = self._mounts.make(writable=place == VOLUMES)
                cell.keep_view(place, view)
                fds += (mount,)
            if VOLUMES in zygote.views:
                settings["file_bytes"] = MAX_VOLUME_FILE_BYTES
            settings["views"] = list(zygote.views)
        except OSError:
            for fd in fds:
                os.close(fd)
            if cell is not None:
                cell.close()
            self._release(self._last, process)
            raise
        self._cells[cell.number] = cell
        self._zygotes[cell.number] = zygote
        zygote.fork(cell, fds, settings)
        cell.on_fork(lambda: self._networks.add(cell.number, process, cell.network_made))
        return cell

    def _ended(self, cell: Cell) -> None:
        del self._cells[cell.number]
        self._networks.remove(cell.number)
        self._zygotes.pop(cell.number).cell_ended(cell)
        self._release(cell.number, cell.process)
        self._tell_ended(cell)
        if self._none_left is not None and not self._none_left.done() and not self._cells:
            self._none_left.set_result(None)

    def _release(self, number: int, process: ProcessHandle) -> None:
        self._resources.release_slot(process)
        self._loop.run_in_executor(None, self._resources.remove, number, process)

    async def end_all(self) -> None:
        """Kill all cells and wait for their end. No cell is made any more."""
        self._none_left = self._loop.create_future()
        for cell in self._cells.values():
            cell.kill()
        if self._cells:
            await self._none_left
        self._mounts.close()
