"""The resources of sandboxes: a user id, a scratch directory and a control group for each."""

import heapq
import os
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aliquot.core.model import DeviceSpec
from aliquot.core.units import MIB
from aliquot.durable_files import remove_directory
from aliquot.live.device.base import DriverContext
from aliquot.live.device.drivers import Drivers
from aliquot.live.device.tenant_cpu import TenantCpu
from aliquot.live.node.cell import Cell, EventLoop, ProcessHandle
from aliquot.live.node.cgroups import NodeCgroups, SandboxCgroup
from aliquot.live.node.isolation import NO_ISOLATION, Isolation, uid_range
from aliquot.live.node.zygote_process import BARE_ENVIRONMENT, ZygoteShare

SCRATCH_BYTES = 512 * MIB
MAX_PROCESSES = 512  # of one sandbox, threads included
NOT_FROZEN = (
    "idle sandboxes are stopped by a signal, for there are no control groups to freeze them: a process that left its "
    "process group goes on computing"
)


def tag_of(data: Path) -> str:
    """Return the name of a node's control groups: unique on this machine, and the same after a restart."""
    return f"aliquot-{zlib.crc32(str(data).encode()):08x}"


def open_drivers(data: Path, devices: Sequence[DeviceSpec], options: str, isolation: Isolation) -> Drivers:
    """Open the drivers of a node's devices. Blocks. `options` follows the driver's name in `--devices`."""
    tag = tag_of(data)
    context = DriverContext(data, options, own_uid=isolation.own_uid, own_root=isolation.mount)
    tenants = TenantCpu(tag, usable=isolation.cgroups)
    return Drivers(tag, devices if isolation.cgroups else (), context, tenants)


class SandboxResources:
    def __init__(self, data: Path, isolation: Isolation, scratch_bytes: int, max_processes: int) -> None:
        """Remove what an earlier server left behind. Blocks for a moment."""
        self._isolation = isolation
        self._scratch = data / "scratch"
        self._scratch_bytes = scratch_bytes
        self._max_processes = max_processes
        self._first_uid = uid_range(data)[0]
        self._free_slots: list[int] = []
        self._slots = 0
        self.cgroups = NodeCgroups(tag_of(data)) if isolation.cgroups else None
        if self.cgroups is not None:
            self.cgroups.sweep()
            self.cgroups.open_freezer()
        remove_directory(self._scratch)  # renames it first: a process left behind may still write there
        self._scratch.mkdir(parents=True, mode=0o711)

    def allocate(self, number: int, loop: EventLoop) -> tuple[ProcessHandle, dict[str, Any]]:
        """Return the handle of a process to be forked, and its settings for the zygote. Raises `OSError`."""
        slot = self._take_slot()
        cgroup: SandboxCgroup | None = None
        try:
            if self.cgroups is not None and self.cgroups.version:
                cgroup = self.cgroups.make(number, self._max_processes)
            environment = self._environment(number, slot)
        except OSError:
            heapq.heappush(self._free_slots, slot)
            if cgroup is not None:
                cgroup.remove()  # it is empty, so this takes no time
            raise
        settings: dict[str, Any] = {
            "env": environment,
            "uid": self._uid(slot),
            "scratch_bytes": self._scratch_bytes,
            "processes": self._max_processes,
            "views": [],
        }
        return ProcessHandle(slot, cgroup, loop), settings

    def allocate_zygote(self, name: str, max_bytes: int) -> ZygoteShare:
        """Return the user id and the control group of a zygote. Raises `OSError`."""
        slot = self._take_slot()
        cgroup: SandboxCgroup | None = None
        try:
            if self.cgroups is not None and self.cgroups.version:
                cgroup = self.cgroups.make(name, self._max_processes)
                cgroup.limit_memory(max_bytes)
        except OSError:
            heapq.heappush(self._free_slots, slot)
            raise
        return ZygoteShare(slot, self._uid(slot) if self._isolation.confined else None, cgroup)

    def release_zygote(self, share: ZygoteShare) -> None:
        """Let another process have the user id of a zygote whose processes have all ended."""
        heapq.heappush(self._free_slots, share.slot)

    def limit_memory(self, cell: Cell, size: int) -> int | None:
        """Limit the memory of the whole sandbox by its control group.

        Without one, return the limit that the function's process has to set for itself.
        """
        if cell.process.cgroup is not None:
            cell.process.cgroup.limit_memory(size)
            return None
        return None if self._isolation == NO_ISOLATION else size

    def _take_slot(self) -> int:
        if self._free_slots:
            return heapq.heappop(self._free_slots)
        self._slots += 1
        return self._slots

    def _uid(self, slot: int) -> int | None:
        """Return the user id as the cell's own namespace numbers it, or None for the server's."""
        if not self._isolation.own_uid:
            return None
        return slot if self._isolation.user else self._first_uid + slot

    def _environment(self, number: int, slot: int) -> dict[str, str]:
        if self._isolation.mount:
            return BARE_ENVIRONMENT  # its scratch directory is made inside
        scratch = self._scratch / str(number)
        scratch.mkdir(mode=0o700)
        if self._isolation.own_uid:
            owner = self._first_uid + slot
            os.chown(scratch, owner, owner)
        return {**BARE_ENVIRONMENT, "HOME": str(scratch), "TMPDIR": str(scratch)}

    def release_slot(self, process: ProcessHandle) -> None:
        """Let another process have the user id of one that has ended or was never forked."""
        heapq.heappush(self._free_slots, process.slot)

    def remove(self, number: int, process: ProcessHandle) -> None:
        """Remove the control group and the scratch directory. Blocks, so it is called from a thread."""
        if process.cgroup is not None:
            process.cgroup.remove()
        if not self._isolation.mount:
            shutil.rmtree(self._scratch / str(number), ignore_errors=True)

    @property
    def lacking(self) -> tuple[str, ...]:
        """The limits that are not enforced, one line each."""
        if self._isolation == NO_ISOLATION or (self.cgroups is not None and self.cgroups.freezes):
            return ()
        return (NOT_FROZEN,)

    def close(self) -> None:
        """Remove all control groups. Blocks, so it is called from a thread."""
        if self.cgroups is not None:
            self.cgroups.sweep()
            self.cgroups.close()
