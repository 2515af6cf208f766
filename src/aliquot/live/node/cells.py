"""Makes cells, and keeps one ready for each zygote: a start then waits for neither the fork nor the walls."""

import asyncio
import contextlib
import os
from collections.abc import Callable

from aliquot.live.node.cell import Cell
from aliquot.live.node.dataset_views import ViewMounts
from aliquot.live.node.sandbox_resources import SandboxResources
from aliquot.live.node.zygotes import ZygoteProcess


class CellPool:
    def __init__(
        self, quarters: SandboxResources, ended: Callable[[Cell], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._quarters = quarters
        self._tell_ended = ended
        self._loop = loop
        self._views = ViewMounts()
        self._cells: dict[int, Cell] = {}
        self._last = 0
        self._none_left: asyncio.Future[None] | None = None  # when all shall end

    def take(self, zygote: ZygoteProcess) -> Cell:
        """The one that is ready, or a new one. Raises `OSError` when there is no room for one."""
        cell, zygote.blank = zygote.blank, None
        return self._make(zygote) if cell is None or cell.has_ended or cell.process.is_over() else cell

    def keep_ready(self, zygote: ZygoteProcess) -> None:
        if zygote.alive and self._none_left is None and (zygote.blank is None or zygote.blank.has_ended):
            with contextlib.suppress(OSError):  # no room for one: the next start will say so, if it lasts
                zygote.blank = self._make(zygote)

    def _make(self, zygote: ZygoteProcess) -> Cell:
        self._last += 1
        cell = Cell(self._last, self, self._loop)
        fds: tuple[int, ...] = ()
        try:
            settings = self._quarters.make(cell)
            fds = cell.open()
            fds += cell.process.group.doors() if cell.process.group else ()
            if zygote.views:
                cell.view, mount = self._views.make()
                fds += (mount,)
                settings["view"] = True
        except OSError:
            for fd in fds:
                os.close(fd)
            cell.close()
            self._clear(cell)
            raise
        self._cells[cell.number] = cell
        zygote.fork(cell, fds, settings)
        return cell

    def ended(self, cell: Cell) -> None:
        del self._cells[cell.number]
        self._clear(cell)
        self._tell_ended(cell)
        if self._none_left is not None and not self._cells:
            self._none_left.set_result(None)

    def _clear(self, cell: Cell) -> None:
        self._quarters.give_back(cell)
        self._loop.run_in_executor(None, self._quarters.clear, cell)

    async def end_all(self) -> None:
        self._none_left = self._loop.create_future()
        for cell in self._cells.values():
            cell.kill()
        if self._cells:
            await self._none_left
        self._views.close()
