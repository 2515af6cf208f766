"""Describe in our own words how a run has ended that did not reply. The result has OpenWhisk's words."""

import contextlib
import fcntl
import os
import select
import struct
from pathlib import Path
from signal import Signals

from aliquot.core.units import MIB
from aliquot.live.node import states
from aliquot.live.node.cell import ProcessHandle

_MAX_EXIT_WAIT_MS = 5  # a process has closed its connection, and then ends within microseconds
_EXITED = (states.error(states.EXITED), states.error(states.EXITED_IN_INIT))
_OUT_OF_MEMORY = states.error(states.OUT_OF_MEMORY)

# The request `PIDFD_GET_INFO` of Linux 6.15 and later: mask, control group, eleven ids, exit status.
_PIDFD_INFO = struct.Struct("QQ11Ii")
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3


def exit_text(process: ProcessHandle, *, starting: bool) -> str:
    """Return OpenWhisk's text for a process that has ended without a reply."""
    if process.ran_out_of_memory():
        return states.OUT_OF_MEMORY
    return states.EXITED_IN_INIT if starting else states.EXITED


def describe_end(process: ProcessHandle, result: bytes, memory_bytes: int, timeout_ms: int | None) -> str:
    """Describe the end of a run, or return nothing if its result says enough.

    `timeout_ms` is the time limit if the run has exceeded it. It is called before the process is killed.
    """
    if timeout_ms is not None:
        return f"timed out after {timeout_ms / 1000:g} s"
    if result == _OUT_OF_MEMORY:
        used = process.cgroup.peak_bytes() if process.cgroup is not None else None
        told = "out of memory" if used is None else f"killed: {used / MIB:.0f} MiB of memory used"
        return f"{told}, limit {memory_bytes / MIB:.0f} MiB"
    if result not in _EXITED or (status := _exit_status(process)) is None:
        return ""
    code = os.waitstatus_to_exitcode(status)
    return f"exited with code {code}" if code >= 0 else f"killed by signal {-code} ({_signal_name(-code)})"


def _exit_status(process: ProcessHandle) -> int | None:
    """Return the status of a process as `os.waitpid` would, or None if it runs or the kernel does not tell."""
    pidfd = process.pidfd
    if pidfd is None:
        return None
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if not poll.poll(_MAX_EXIT_WAIT_MS):
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):  # it is a zombie until its zygote has noticed
        state, *fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
        if state == "Z":
            return int(fields[-1])
    with contextlib.suppress(OSError):
        found = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, found)
        mask, *_, status = _PIDFD_INFO.unpack(found)
        if mask & _PIDFD_INFO_EXIT:
            return int(status)
    return None


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return "no name"
