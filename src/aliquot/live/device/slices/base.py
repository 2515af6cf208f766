"""A sandbox's part of a virtual device, and what bounds of the kernel's it is made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from aliquot.live.device.records import Enforcement

ROOT = Path("/sys/fs/cgroup")
MIN_QUOTA_US = 1000  # the kernel takes no less
# Longer shows as stutter. Shorter, and an eighth of it is less than the scheduler's tick (4 ms at 250 Hz) keeps to: of
# eight equal slices over 10 ms the means were off by up to a point, over 20 ms by a fifth of one.
PERIOD_US = 20_000
MAX_PERIOD_US = 1_000_000
DEVICE_WEIGHT = 4  # what a device weighs against all else that runs on its cores: the server must have its turn, too


class VirtualDevice(Struct, frozen=True):
    """A virtual device, or several that a sandbox holds together."""

    name: str
    cores: float  # how much of them
    which: tuple[int, ...]


class HostSlice(Protocol):
    """One sandbox's. Everything raises `OSError` when its processes are gone, and their groups with them."""

    @property
    def directory(self) -> Path | None:
        """The one group that it is in, where there is one for everything."""
        ...

    def enter(self, pids: Sequence[int]) -> None: ...

    def resize(self, share: float, ceiling: float) -> None: ...

    def freeze(self, *, still: bool) -> bool:
        """False: it cannot be done here."""
        ...

    def used_s(self) -> float:
        """Seconds of the whole device. Takes microseconds."""
        ...

    def held_bytes(self) -> int | None:
        """None: it is counted elsewhere."""
        ...

    def remove(self) -> None: ...


class SliceEnforcer(Protocol):
    @property
    def enforcement(self) -> Enforcement: ...

    def make(self, sandbox: int, carved: VirtualDevice) -> HostSlice: ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def quota_us(ceiling_cores: float) -> tuple[int, int]:
    """Time and period for so many cores; the period grows where the time would be too short for the kernel."""
    period = PERIOD_US
    if ceiling_cores * period < MIN_QUOTA_US:
        period = min(MAX_PERIOD_US, round(MIN_QUOTA_US / max(ceiling_cores, 1e-6)))
    return max(MIN_QUOTA_US, round(ceiling_cores * period)), period
