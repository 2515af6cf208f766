"""Parts by control groups of version 1: a tree for each controller, in each a group for the device, those of its
sandboxes below it, so that weights count within the device alone.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from aliquot.live.device.cgroup_files import KernelCounter
from aliquot.live.device.records import Enforcement
from aliquot.live.device.slices.base import DEVICE_WEIGHT, ROOT, HostSlice, SliceEnforcer, VirtualDevice, quota_us

TREES = ("cpu", "cpuacct", "cpuset", "freezer")
_WHOLE = 10_240  # the weight of a whole device among its slices
_PLAIN = 1024  # what a group weighs of which nothing is said


class CgroupV1Slice(HostSlice):
    directory = None  # there are several

    def __init__(self, device: Path, name: str, carved: VirtualDevice) -> None:
        self._directories = {tree: ROOT / tree / device / name for tree in TREES if tree != "cpuset"}
        self._cpuset = ROOT / "cpuset" / device
        self._cores = carved.cores
        for directory in self._directories.values():
            directory.mkdir(exist_ok=True)
        self._used_ns = KernelCounter(self._directories["cpuacct"] / "cpuacct.usage")

    def enter(self, pids: Sequence[int]) -> None:
        for pid in pids:
            for directory in (*self._directories.values(), self._cpuset):
                with contextlib.suppress(ProcessLookupError):
                    (directory / "cgroup.procs").write_text(str(pid))

    def resize(self, share: float, ceiling: float) -> None:
        directory = self._directories["cpu"]
        (directory / "cpu.shares").write_text(str(max(2, round(_WHOLE * share))))
        quota, period = quota_us(ceiling * self._cores)
        # A whole device is the device group's own bound: one that is not checked again costs nothing.
        (directory / "cpu.cfs_period_us").write_text(str(period))
        (directory / "cpu.cfs_quota_us").write_text(str(-1 if ceiling >= 1 else quota))

    def freeze(self, *, still: bool) -> bool:
        (self._directories["freezer"] / "freezer.state").write_text("FROZEN" if still else "THAWED")
        return True

    def used_s(self) -> float:
        return self._used_ns.read() / 1e9 / self._cores

    def held_bytes(self) -> None:
        """The node counts it with the sandbox's memory."""

    def remove(self) -> None:
        """Empty ones; one in which something still dies is left to the next sweep."""
        self._used_ns.close()
        for directory in self._directories.values():
            with contextlib.suppress(OSError):
                directory.rmdir()


class CgroupV1Enforcer(SliceEnforcer):
    enforcement = Enforcement("weight and quota (cgroups v1)", "with the sandbox's own memory", "frozen (cgroups v1)")

    def __init__(self, tag: str) -> None:
        """Raises `OSError` where the groups cannot be made."""
        self._tag = tag
        self._devices: dict[str, Path] = {}
        for tree in TREES:
            (ROOT / tree / tag).mkdir(exist_ok=True)
        for left in (ROOT / "freezer" / tag).glob("*/*/freezer.state"):  # by a server that was killed
            left.write_text("THAWED")
        (ROOT / "cpu" / tag / "cpu.shares").write_text(str(DEVICE_WEIGHT * _PLAIN))
        self._set_cores(Path(tag), range(os.cpu_count() or 1))

    def make(self, sandbox: int, carved: VirtualDevice) -> CgroupV1Slice:
        if carved.name not in self._devices:
            self._devices[carved.name] = self._carve(carved)
        return CgroupV1Slice(self._devices[carved.name], str(sandbox), carved)

    def _carve(self, carved: VirtualDevice) -> Path:
        path = Path(self._tag) / carved.name
        for tree in TREES:
            (ROOT / tree / path).mkdir(exist_ok=True)
        cpu = ROOT / "cpu" / path
        (cpu / "cpu.shares").write_text(str(DEVICE_WEIGHT * _PLAIN))
        if carved.cores < len(carved.which):
            quota, period = quota_us(carved.cores)
            (cpu / "cpu.cfs_period_us").write_text(str(period))
            (cpu / "cpu.cfs_quota_us").write_text(str(quota))
        self._set_cores(path, carved.which)
        return path

    def _set_cores(self, path: Path, which: Sequence[int]) -> None:
        directory = ROOT / "cpuset" / path
        (directory / "cpuset.cpus").write_text(",".join(map(str, which)))
        (directory / "cpuset.mems").write_text((ROOT / "cpuset" / "cpuset.mems").read_text().strip())

    def close(self) -> None:
        for tree in TREES:
            top = ROOT / tree / self._tag
            for directory in sorted(top.glob("**/"), reverse=True):
                with contextlib.suppress(OSError):
                    directory.rmdir()
