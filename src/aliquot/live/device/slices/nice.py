"""Slices without control groups, by CPU affinity and nice values. They are reported as not enforced."""

import contextlib
import os
from collections.abc import Sequence
from math import log
from pathlib import Path

from aliquot.live.device.records import NOT_ENFORCED, Enforcement
from aliquot.live.device.slices.base import HostSlice, SliceEnforcer, VirtualDevice

_STEP = log(1.25)  # the kernel's scheduler weighs each nice level by this factor
_MAX_NICE = 19
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def nice_for(share: float) -> int:
    """Return a nice value by which competing processes get a core in about the proportion of their shares."""
    return min(_MAX_NICE, max(0, round(log(1 / max(share, 1e-3)) / _STEP)))


class NiceSlice(HostSlice):
    directory = None

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self._nice = 0
        self._pids: list[int] = []

    def enter(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.sched_setaffinity(pid, self._device.core_ids)
                self._pids.append(pid)
        self._renice()

    def resize(self, share: float, ceiling: float) -> None:
        self._nice = nice_for(share)
        self._renice()

    def _renice(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it can only be raised without privileges
                os.setpriority(os.PRIO_PROCESS, pid, self._nice)

    def compute_s(self) -> float:
        """Return the compute of the process with its threads, without its children."""
        ticks = 0
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS / self._device.cores

    def memory_bytes(self) -> int:
        """Return the memory of the process, without files that it may share."""
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

    def make(self, sandbox: int, device: VirtualDevice) -> NiceSlice:
        return NiceSlice(device)

    def close(self) -> None:
        """Do nothing, because no groups were made."""
