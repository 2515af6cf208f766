"""Parts by control groups of version 2: one tree, a group for the device, those of its sandboxes below it.

A process is in one group only. So a sandbox leaves the one in which its memory was counted, and all that is bounded of
it is bounded in its part. Written to the kernel's documented interface; not yet run on a machine with v2 controllers.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from aliquot.live.device.cgroup_files import CgroupTree, KernelCounter, claim_tree, delegate_controllers, release_tree
from aliquot.live.device.records import NOT_ENFORCED, Enforcement
from aliquot.live.device.slices.base import DEVICE_WEIGHT, HostSlice, SliceEnforcer, VirtualDevice, quota_us

_PLAIN = 100  # what a group weighs of which nothing is said
_WHOLE = 10_000  # the most it can weigh
_NOT_RUN = "version 2 of control groups: written to the kernel's documented interface, not yet run with its controllers"


class CgroupV2Slice(HostSlice):
    def __init__(self, device: Path, name: str, carved: VirtualDevice, controllers: Sequence[str]) -> None:
        self._directory = device / name
        self._carved = carved
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
                    os.sched_setaffinity(pid, self._carved.which)

    def resize(self, share: float, ceiling: float) -> None:
        if "cpu" not in self._controllers:
            return
        (self._directory / "cpu.weight").write_text(str(max(1, round(_WHOLE * share))))
        quota, period = quota_us(ceiling * self._carved.cores)
        (self._directory / "cpu.max").write_text(f"{'max' if ceiling >= 1 else quota} {period}")

    def freeze(self, *, still: bool) -> bool:
        (self._directory / "cgroup.freeze").write_text("1" if still else "0")
        return True

    def used_s(self) -> float:
        return self._used_us.read() / 1e6 / self._carved.cores

    def held_bytes(self) -> None:
        """The node counts it with the sandbox's memory."""

    def remove(self) -> None:
        self._used_us.close()
        with contextlib.suppress(OSError):
            self._directory.rmdir()


class CgroupV2Enforcer(SliceEnforcer):
    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree
        self._devices: dict[str, Path] = {}
        for left in tree.path.glob("*/*/cgroup.freeze"):  # by a server that was killed
            left.write_text("0")
        if "cpu" in tree.controllers:
            (tree.path / "cpu.weight").write_text(str(DEVICE_WEIGHT * _PLAIN))

    @classmethod
    def claim(cls, tag: str) -> "CgroupV2Enforcer":
        """Raises `OSError` where slices could not be kept."""
        tree = claim_tree(tag)
        if "cpu" not in tree.controllers:
            release_tree(tree)
            raise FileNotFoundError(0, "no controller cpu", str(tree.path.parent))
        return cls(tree)

    @property
    def enforcement(self) -> Enforcement:
        kept = "weight and quota (cgroups v2)" if "cpu" in self._tree.controllers else NOT_ENFORCED
        return Enforcement(kept, "with the sandbox's own memory", "frozen (cgroups v2)", (_NOT_RUN,))

    def make(self, sandbox: int, carved: VirtualDevice) -> CgroupV2Slice:
        if carved.name not in self._devices:
            self._devices[carved.name] = self._carve(carved)
        return CgroupV2Slice(self._devices[carved.name], str(sandbox), carved, self._tree.controllers)

    def _carve(self, carved: VirtualDevice) -> Path:
        path = self._tree.path / carved.name
        path.mkdir(exist_ok=True)
        if "cpu" in self._tree.controllers:
            (path / "cpu.weight").write_text(str(DEVICE_WEIGHT * _PLAIN))
            if carved.cores < len(carved.which):
                (path / "cpu.max").write_text("{} {}".format(*quota_us(carved.cores)))
        if "cpuset" in self._tree.controllers:
            (path / "cpuset.cpus").write_text(",".join(map(str, carved.which)))
        delegate_controllers(path, self._tree.controllers)
        return path

    def close(self) -> None:
        for path in self._devices.values():
            with contextlib.suppress(OSError):
                for left in [each for each in path.iterdir() if each.is_dir()]:
                    left.rmdir()
                path.rmdir()
        release_tree(self._tree)
