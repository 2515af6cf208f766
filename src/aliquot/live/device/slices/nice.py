"""Parts where no control groups can be written: the device's cores and a nice value. A wish, and said to be no more."""

import contextlib
import os
from collections.abc import Sequence
from math import log
from pathlib import Path

from aliquot.live.device.records import NOT_ENFORCED, Enforcement
from aliquot.live.device.slices.base import HostSlice, SliceEnforcer, VirtualDevice

_STEP = log(1.25)  # what one nice value is worth to the kernel's scheduler
_MOST = 19
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def nice_for(share: float) -> int:
    """So that two who both want a core have it in about the proportion of their shares, where nothing else decides."""
    return min(_MOST, max(0, round(log(1 / max(share, 1e-3)) / _STEP)))


class NiceSlice(HostSlice):
    directory = None

    def __init__(self, carved: VirtualDevice) -> None:
        self._carved = carved
        self._nice = 0
        self._pids: list[int] = []

    def enter(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.sched_setaffinity(pid, self._carved.which)
                self._pids.append(pid)
        self._renice()

    def resize(self, share: float, ceiling: float) -> None:
        self._nice = nice_for(share)
        self._renice()

    def _renice(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # without rights it only ever grows nicer
                os.setpriority(os.PRIO_PROCESS, pid, self._nice)

    def freeze(self, *, still: bool) -> bool:
        return False

    def used_s(self) -> float:
        """Of its process with its threads; children are not seen."""
        ticks = 0
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS / self._carved.cores

    def held_bytes(self) -> int:
        """Of its process, without files that others may share."""
        pages = 0
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/statm").read_text().split()
            pages += int(fields[1]) - int(fields[2])
        return pages * _PAGE_BYTES

    def remove(self) -> None:
        self._pids.clear()


class NiceEnforcer(SliceEnforcer):
    def __init__(self, why: str) -> None:
        self._why = why

    @property
    def enforcement(self) -> Enforcement:
        why = f"slices of host devices are not enforced, nice values and cores alone ask for them: {self._why}"
        return Enforcement(
            f"{NOT_ENFORCED} (nice, cores)", "with the sandbox's own memory", "stopped (signals)", (why,)
        )

    def make(self, sandbox: int, carved: VirtualDevice) -> NiceSlice:
        return NiceSlice(carved)

    def close(self) -> None:
        """There is nothing."""
