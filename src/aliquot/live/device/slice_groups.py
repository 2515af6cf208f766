"""Control groups for slices of a virtual device: weight, ceiling, cores, a count of what was used, and standing still.

Version 1 has a tree for each of these; a device is a group with its sandboxes' groups below it, so that weights count
within the device alone. In version 2 a sandbox has one group already, for its memory, and the rest is set there.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from aliquot.live.device.counter import Counter

ROOT = Path("/sys/fs/cgroup")
LEAST_QUOTA_US = 1000  # the kernel takes no less
# Shorter than this costs more in switches than it gains in evenness; longer shows as stutter.
PERIOD_US = 10_000
MOST_PERIOD_US = 1_000_000
WHOLE = 10_240  # the weight of a whole device among its slices
# What a device weighs against everything else that runs on its cores: the server must come to its turn, too.
AGAINST_OTHERS = 4096
_TREES = ("cpu", "cpuacct", "freezer")


def quota_us(ceiling_cores: float) -> tuple[int, int]:
    """Time and period for so many cores; the period grows where the time would be too short for the kernel."""
    period = PERIOD_US
    if ceiling_cores * period < LEAST_QUOTA_US:
        period = min(MOST_PERIOD_US, round(LEAST_QUOTA_US / max(ceiling_cores, 1e-6)))
    return max(LEAST_QUOTA_US, round(ceiling_cores * period)), period


class SliceGroup:
    """One sandbox's part."""

    def __init__(self, parent: Path, name: str, cores: float) -> None:
        self._directories = {tree: ROOT / tree / parent / name for tree in _TREES}
        self._cores = cores
        for directory in self._directories.values():
            directory.mkdir(exist_ok=True)
        self._used_ns = Counter(self._directories["cpuacct"] / "cpuacct.usage")

    def enter(self, pids: Sequence[int], cpuset: Path) -> None:
        for pid in pids:
            for directory in (*self._directories.values(), cpuset):
                with contextlib.suppress(ProcessLookupError):
                    (directory / "cgroup.procs").write_text(str(pid))

    def resize(self, share: float, ceiling: float) -> None:
        directory = self._directories["cpu"]
        (directory / "cpu.shares").write_text(str(max(2, round(WHOLE * share))))
        quota, period = quota_us(ceiling * self._cores)
        # A whole device is the device group's own bound: one that is not checked again costs nothing.
        (directory / "cpu.cfs_period_us").write_text(str(period))
        (directory / "cpu.cfs_quota_us").write_text(str(-1 if ceiling >= 1 else quota))

    def freeze(self, *, still: bool) -> None:
        (self._directories["freezer"] / "freezer.state").write_text("FROZEN" if still else "THAWED")

    def used_s(self) -> float:
        """Seconds of the whole device. Raises `OSError` when the group is gone."""
        return self._used_ns.read() / 1e9 / self._cores

    def remove(self) -> None:
        """Empty ones; one in which something still dies is left to the next sweep."""
        self._used_ns.close()
        for directory in self._directories.values():
            with contextlib.suppress(OSError):
                directory.rmdir()


class DeviceGroups:
    """A virtual device's groups: so many cores, and these ones."""

    def __init__(self, tag: str, device: str, cores: float, which: Sequence[int]) -> None:
        self._path = Path(tag) / device
        self._cores = cores
        for tree in _TREES:
            (ROOT / tree / self._path).mkdir(parents=True, exist_ok=True)
        for left in (ROOT / "freezer" / self._path).glob("*/freezer.state"):  # by a server that was killed
            left.write_text("THAWED")
        cpu = ROOT / "cpu" / self._path
        for directory in (cpu.parent, cpu):
            (directory / "cpu.shares").write_text(str(AGAINST_OTHERS))
        if cores < len(which):
            quota, period = quota_us(cores)
            cpu.joinpath("cpu.cfs_period_us").write_text(str(period))
            cpu.joinpath("cpu.cfs_quota_us").write_text(str(quota))
        self.cpuset = ROOT / "cpuset" / self._path
        for directory in (self.cpuset.parent, self.cpuset):
            directory.mkdir(exist_ok=True)
            chosen = which if directory == self.cpuset else range(os.cpu_count() or 1)
            (directory / "cpuset.cpus").write_text(",".join(map(str, chosen)))
            (directory / "cpuset.mems").write_text((ROOT / "cpuset" / "cpuset.mems").read_text().strip())

    def make(self, sandbox: int) -> SliceGroup:
        return SliceGroup(self._path, str(sandbox), self._cores)

    def remove(self) -> None:
        for tree in (*_TREES, "cpuset"):
            directory = ROOT / tree / self._path
            with contextlib.suppress(OSError):
                for left in [path for path in directory.iterdir() if path.is_dir()]:
                    left.rmdir()
                directory.rmdir()
            with contextlib.suppress(OSError):
                directory.parent.rmdir()
