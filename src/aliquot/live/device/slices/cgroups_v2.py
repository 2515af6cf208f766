"""Slices by control groups of version 2: one tree with a group per device, and the groups of sandboxes below it.

A process is in one group only. So a sandbox leaves the group that counted its memory, and its slice's group enforces
all its limits. This is written to the kernel's documented interface and has not yet run with v2 controllers.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from aliquot.live.device.cgroup_files import CgroupTree, KernelCounter, claim_tree, delegate_controllers, release_tree
from aliquot.live.device.records import NOT_ENFORCED, Enforcement
from aliquot.live.device.slices.base import DEVICE_WEIGHT, HostSlice, SliceEnforcer, VirtualDevice, quota_us

_DEFAULT_WEIGHT = 100  # the default weight of a group
_MAX_WEIGHT = 10_000  # the highest weight that the kernel takes
_NOT_RUN = "version 2 of control groups: written to the kernel's documented interface, not yet run with its controllers"


class CgroupV2Slice(HostSlice):
    def __init__(self, device_group: Path, name: str, device: VirtualDevice, controllers: Sequence[str]) -> None:
        self._directory = device_group / name
        self._device = device
        self._controllers = controllers
        self._directory.mkdir(exist_ok=True)
        self._used_us = KernelCounter(self._directory / "cpu.stat", "usage_usec")

    @property
    def directory(self) -> Path:
        return self._directory

    def enter(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (self._directory / "cgroup.procs").write_text(str(pid))
                if "cpuset" not in self._controllers:
                    os.sched_setaffinity(pid, self._device.core_ids)

    def resize(self, share: float, ceiling: float) -> None:
        if "cpu" not in self._controllers:
            return
        (self._directory / "cpu.weight").write_text(str(max(1, round(_MAX_WEIGHT * share))))
        quota, period = quota_us(ceiling * self._device.cores)
        (self._directory / "cpu.max").write_text(f"{'max' if ceiling >= 1 else quota} {period}")

    def compute_s(self) -> float:
        return self._used_us.read() / 1e6 / self._device.cores

    def memory_bytes(self) -> None:
        """Return None: the node counts it with the sandbox's memory."""

    def remove(self) -> None:
        self._used_us.close()
        with contextlib.suppress(OSError):
            self._directory.rmdir()


class CgroupV2Enforcer(SliceEnforcer):
    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree
        self._devices: dict[str, Path] = {}
        if "cpu" in tree.controllers:
            (tree.path / "cpu.weight").write_text(str(DEVICE_WEIGHT * _DEFAULT_WEIGHT))

    @classmethod
    def claim(cls, tag: str) -> "CgroupV2Enforcer":
        """Claim a part of the tree. Raises `OSError` where slices could not be enforced."""
        tree = claim_tree(tag)
        if "cpu" not in tree.controllers:
            release_tree(tree)
            raise FileNotFoundError(0, "no controller cpu", str(tree.path.parent))
        return cls(tree)

    @property
    def enforcement(self) -> Enforcement:
        kept = "weight and quota (cgroups v2)" if "cpu" in self._tree.controllers else NOT_ENFORCED
        return Enforcement(kept, "with the sandbox's own memory", "frozen (cgroups v2)", (_NOT_RUN,))

    def make(self, sandbox: int, device: VirtualDevice) -> CgroupV2Slice:
        if device.name not in self._devices:
            self._devices[device.name] = self._make_device_group(device)
        return CgroupV2Slice(self._devices[device.name], str(sandbox), device, self._tree.controllers)

    def _make_device_group(self, device: VirtualDevice) -> Path:
        path = self._tree.path / device.name
        path.mkdir(exist_ok=True)
        if "cpu" in self._tree.controllers:
            (path / "cpu.weight").write_text(str(DEVICE_WEIGHT * _DEFAULT_WEIGHT))
            if device.cores < len(device.core_ids):
                (path / "cpu.max").write_text("{} {}".format(*quota_us(device.cores)))
        if "cpuset" in self._tree.controllers:
            (path / "cpuset.cpus").write_text(",".join(map(str, device.core_ids)))
        delegate_controllers(path, self._tree.controllers)
        return path

    def close(self) -> None:
        for path in self._devices.values():
            with contextlib.suppress(OSError):
                for left in [each for each in path.iterdir() if each.is_dir()]:
                    left.rmdir()
                path.rmdir()
        release_tree(self._tree)
