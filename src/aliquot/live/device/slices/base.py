"""A sandbox's slice of a virtual device, and the kernel limits by which it is enforced."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from aliquot.live.device.records import Enforcement

ROOT = Path("/sys/fs/cgroup")
MIN_QUOTA_US = 1000  # the kernel accepts no less
# A longer period makes functions stutter. With a shorter one, an eighth of it is below the scheduler's tick (4 ms at
# 250 Hz): the means of eight equal slices were off by up to 1 percentage point over 10 ms, and by 0.2 over 20 ms.
PERIOD_US = 20_000
MAX_PERIOD_US = 1_000_000
DEVICE_WEIGHT = 4  # of a device against everything else on its cores, where the server must run, too


class VirtualDevice(Struct, frozen=True):
    """A virtual device, or several that a sandbox holds together."""

    name: str
    cores: float  # how many cores it has, or what fraction of one
    core_ids: tuple[int, ...]


class HostSlice(Protocol):
    """One sandbox's slice. Its methods raise `OSError` when the sandbox has ended and its control groups are gone."""

    @property
    def directory(self) -> Path | None:
        """The sandbox's control group, where one group serves all controllers."""
        ...

    def enter(self, pids: Sequence[int]) -> None: ...

    def resize(self, share: float, ceiling: float) -> None: ...

    def compute_s(self) -> float:
        """Return the compute used so far, in seconds of the whole device. Takes microseconds."""
        ...

    def memory_bytes(self) -> int | None:
        """Return the memory in use, or None if the node counts it."""
        ...

    def remove(self) -> None: ...


class SliceEnforcer(Protocol):
    @property
    def enforcement(self) -> Enforcement: ...

    def make(self, sandbox: int, device: VirtualDevice) -> HostSlice: ...

    def close(self) -> None:
        """Remove all control groups."""
        ...


def quota_us(ceiling_cores: float) -> tuple[int, int]:
    """Return quota and period for so many cores. The period grows if the quota would be below the kernel's minimum."""
    period = PERIOD_US
    if ceiling_cores * period < MIN_QUOTA_US:
        period = min(MAX_PERIOD_US, round(MIN_QUOTA_US / max(ceiling_cores, 1e-6)))
    return max(MIN_QUOTA_US, round(ceiling_cores * period)), period
