"""The counters of a process in /proc, through files that stay open. A look takes some microseconds."""

import os
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_READ_BYTES = 1024


class TransferCounters(NamedTuple):
    """Bytes that a process has read and written so far, by files and sockets, and the system calls for them."""

    read_bytes: int
    written_bytes: int
    system_calls: int


class StateCounters(NamedTuple):
    """Page faults and processor time of a process so far, and its memory now."""

    faults: int
    compute_s: float
    memory_bytes: int


class ProcessCounters:
    """Reads the counters of one process. What this user may not read counts as nothing."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._io = _open(pid, "io")
        self._stat = _open(pid, "stat")

    def transfers(self) -> TransferCounters:
        """Return what was transferred so far. A process that has ended gives zeros."""
        fields = _read(self._io).split()
        # rchar: N, wchar: N, syscr: N, syscw: N, and more
        if len(fields) < 8:  # noqa: PLR2004 - four counters with their names
            return TransferCounters(0, 0, 0)
        return TransferCounters(int(fields[1]), int(fields[3]), int(fields[5]) + int(fields[7]))

    def state(self) -> StateCounters:
        """Return faults, processor time and memory. A process that has ended gives zeros."""
        fields = _read(self._stat).rpartition(b")")[2].split()
        if len(fields) < 22:  # noqa: PLR2004 - up to the resident pages
            return StateCounters(0, 0.0, 0)
        return StateCounters(
            int(fields[7]) + int(fields[9]),
            (int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
            int(fields[21]) * _PAGE_BYTES,
        )

    def close(self) -> None:
        for file in (self._io, self._stat):
            if file is not None:
                os.close(file)
        self._io = self._stat = None


def _open(pid: int, name: str) -> int | None:
    try:
        return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(file: int | None) -> bytes:
    if file is None:
        return b""
    try:
        return os.pread(file, _READ_BYTES, 0)
    except OSError:  # the process has ended, or its counters are not for this user
        return b""
