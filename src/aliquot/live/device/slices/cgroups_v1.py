"""Slices by control groups of version 1.

Each controller has a tree with one group per device. The groups of sandboxes are below it, so that their weights count
within the device only.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from aliquot.live.device.cgroup_files import KernelCounter
from aliquot.live.device.records import Enforcement
from aliquot.live.device.slices.base import DEVICE_WEIGHT, ROOT, HostSlice, SliceEnforcer, VirtualDevice, quota_us

TREES = ("cpu", "cpuacct", "cpuset")
_DEVICE_SHARES = 10_240  # the weight of a slice that is the whole device
_DEFAULT_SHARES = 1024  # the default weight of a group


class CgroupV1Slice(HostSlice):
    directory = None  # each controller has its own

    def __init__(self, device_group: Path, name: str, device: VirtualDevice) -> None:
        self._directories = {tree: ROOT / tree / device_group / name for tree in TREES if tree != "cpuset"}
        self._cpuset = ROOT / "cpuset" / device_group
        self._cores = device.cores
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
        (directory / "cpu.shares").write_text(str(max(2, round(_DEVICE_SHARES * share))))
        quota, period = quota_us(ceiling * self._cores)
        # The group of the device limits a whole device already. A second limit would cost time.
        (directory / "cpu.cfs_period_us").write_text(str(period))
        (directory / "cpu.cfs_quota_us").write_text(str(-1 if ceiling >= 1 else quota))

    def compute_s(self) -> float:
        return self._used_ns.read() / 1e9 / self._cores

    def memory_bytes(self) -> None:
        """Return None: the node counts it with the sandbox's memory."""

    def remove(self) -> None:
        """Remove the groups. One with a process that has not ended yet is left to `close`."""
        self._used_ns.close()
        for directory in self._directories.values():
            with contextlib.suppress(OSError):
                directory.rmdir()


class CgroupV1Enforcer(SliceEnforcer):
    enforcement = Enforcement("weight and quota (cgroups v1)", "with the sandbox's own memory", "frozen (cgroups v1)")

    def __init__(self, tag: str) -> None:
        """Make the groups of the node. Raises `OSError` where that is not possible."""
        self._tag = tag
        self._devices: dict[str, Path] = {}
        for tree in TREES:
            (ROOT / tree / tag).mkdir(exist_ok=True)
        (ROOT / "cpu" / tag / "cpu.shares").write_text(str(DEVICE_WEIGHT * _DEFAULT_SHARES))
        self._set_cores(Path(tag), range(os.cpu_count() or 1))

    def make(self, sandbox: int, device: VirtualDevice) -> CgroupV1Slice:
        if device.name not in self._devices:
            self._devices[device.name] = self._make_device_group(device)
        return CgroupV1Slice(self._devices[device.name], str(sandbox), device)

    def _make_device_group(self, device: VirtualDevice) -> Path:
        path = Path(self._tag) / device.name
        for tree in TREES:
            (ROOT / tree / path).mkdir(exist_ok=True)
        cpu = ROOT / "cpu" / path
        (cpu / "cpu.shares").write_text(str(DEVICE_WEIGHT * _DEFAULT_SHARES))
        if device.cores < len(device.core_ids):
            quota, period = quota_us(device.cores)
            (cpu / "cpu.cfs_period_us").write_text(str(period))
            (cpu / "cpu.cfs_quota_us").write_text(str(quota))
        self._set_cores(path, device.core_ids)
        return path

    def _set_cores(self, path: Path, core_ids: Sequence[int]) -> None:
        directory = ROOT / "cpuset" / path
        (directory / "cpuset.cpus").write_text(",".join(map(str, core_ids)))
        (directory / "cpuset.mems").write_text((ROOT / "cpuset" / "cpuset.mems").read_text().strip())

    def close(self) -> None:
        for tree in TREES:
            top = ROOT / tree / self._tag
            for directory in sorted(top.glob("**/"), reverse=True):
                with contextlib.suppress(OSError):
                    directory.rmdir()
