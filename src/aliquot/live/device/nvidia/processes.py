"""Whose process it is: NVML tells pids, and a sandbox is a process with all that it has started."""

from collections.abc import Callable
from pathlib import Path

_MOST = 64  # steps up a family tree


def parent_of(pid: int) -> int:
    """0 when it has none, or is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class Processes:
    def __init__(self, parent: Callable[[int], int] = parent_of) -> None:
        self._sandbox_of: dict[int, int] = {}  # by pid
        self._parent = parent

    def add(self, sandbox: int, pids: list[int]) -> None:
        self._sandbox_of.update(dict.fromkeys(pids, sandbox))

    def remove(self, sandbox: int) -> None:
        for pid in [pid for pid, whose in self._sandbox_of.items() if whose == sandbox]:
            del self._sandbox_of[pid]

    def sandbox_of(self, pid: int) -> int | None:
        """None: no sandbox's."""
        for _ in range(_MOST):
            if pid in self._sandbox_of:
                return self._sandbox_of[pid]
            if pid <= 1:
                break
            pid = self._parent(pid)
        return None
