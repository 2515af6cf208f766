"""Where sandboxes live: a user id, a scratch directory and a control group for each, and none left when it is gone."""

import heapq
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

from aliquot.core.units import MIB
from aliquot.durable_files import remove_directory
from aliquot.live.node.cell import Cell
from aliquot.live.node.cgroups import NodeCgroups
from aliquot.live.node.isolation import NO_ISOLATION, Isolation, uid_range
from aliquot.live.node.zygotes import BARE_ENVIRONMENT

SCRATCH_BYTES = 512 * MIB
MAX_PROCESSES = 512  # of one sandbox, threads included


def tag_of(data: Path) -> str:
    """The name of a node's control groups: its own on this machine, and the same after a crash."""
    return f"aliquot-{zlib.crc32(str(data).encode()):08x}"


class SandboxResources:
    def __init__(self, data: Path, isolation: Isolation, scratch_bytes: int, processes: int) -> None:
        """Removes what an earlier server left behind; takes a moment."""
        self._isolation = isolation
        self._scratch = data / "scratch"
        self._scratch_bytes = scratch_bytes
        self._processes = processes
        self._first_uid = uid_range(data)[0]
        self._free_slots: list[int] = []
        self._slots = 0
        self._cgroups = NodeCgroups(tag_of(data)) if isolation.cgroups else None
        if self._cgroups is not None:
            self._cgroups.sweep()
        remove_directory(self._scratch)  # renames it first: a process left behind may still write there
        self._scratch.mkdir(parents=True, mode=0o711)

    def make(self, cell: Cell) -> dict[str, Any]:
        """What the cell will be told of its place; its process gets its slot and its group."""
        self._take_slot(cell)
        if self._cgroups is not None and self._cgroups.version:
            cell.process.group = self._cgroups.make(cell.number, self._processes)
        return {
            "env": self._environment(cell),
            "uid": self._uid(cell),
            "scratch_bytes": self._scratch_bytes,
            "processes": self._processes,
            "view": False,
        }

    def limit_memory(self, cell: Cell, size: int) -> int | None:
        """Now, where the kernel counts it; otherwise the answer is what the function's process must bound by itself."""
        if cell.process.group is not None:
            cell.process.group.limit_memory(size)
            return None
        return None if self._isolation == NO_ISOLATION else size

    def _take_slot(self, cell: Cell) -> None:
        if self._free_slots:
            cell.process.slot = heapq.heappop(self._free_slots)
        else:
            self._slots += 1
            cell.process.slot = self._slots

    def _uid(self, cell: Cell) -> int | None:
        """As the cell's own namespace counts; None: the server's."""
        if not self._isolation.own_uid:
            return None
        return cell.process.slot if self._isolation.user else self._first_uid + cell.process.slot

    def _environment(self, cell: Cell) -> dict[str, str]:
        if self._isolation.mount:
            return BARE_ENVIRONMENT  # its scratch directory is made inside
        scratch = self._scratch / str(cell.number)
        scratch.mkdir(mode=0o700)
        if self._isolation.own_uid:
            owner = self._first_uid + cell.process.slot
            os.chown(scratch, owner, owner)
        return {**BARE_ENVIRONMENT, "HOME": str(scratch), "TMPDIR": str(scratch)}

    def give_back(self, cell: Cell) -> None:
        """Its process is no more, or never was: the user id may be another's."""
        heapq.heappush(self._free_slots, cell.process.slot)

    def clear(self, cell: Cell) -> None:
        """Remove what is left of it. Takes a moment; not for the event loop."""
        if cell.process.group is not None:
            cell.process.group.remove()
        if not self._isolation.mount:
            shutil.rmtree(self._scratch / str(cell.number), ignore_errors=True)

    def close(self) -> None:
        """Takes a moment, too."""
        if self._cgroups is not None:
            self._cgroups.sweep()
            self._cgroups.close()
