"""Control groups: the memory and the number of processes of a whole sandbox, counted and bounded by the kernel.

Version 1 has a tree for each controller, version 2 one for all. Where neither can be written, there are none.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_REMOVE_ATTEMPTS = 100
_REMOVE_PAUSE_S = 0.02


class Group:
    """One sandbox's."""

    def __init__(self, directories: list[Path], limit: str, events: str, usage: str) -> None:
        self._limit = directories[0] / limit
        self._directories = directories
        self._events = directories[0] / events
        self.usage = directories[0] / usage  # the file in which its bytes are counted

    def doors(self) -> tuple[int, ...]:
        """Descriptors by which a process enters: it writes `0`. The caller closes them."""
        return tuple(os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in self._directories)

    def limit_memory(self, size: int) -> None:
        self._limit.write_text(str(size))

    def ran_out_of_memory(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            for line in self._events.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1]) > 0
        return False

    def used_bytes(self) -> int:
        return int(self.usage.read_text())

    def pids(self) -> list[int]:
        return _pids(self._directories[0])

    def remove(self) -> None:
        """With whatever is still in it. Takes a moment; not for the event loop."""
        for directory in self._directories:
            _remove(directory)


class Cgroups:
    """Where a node makes its groups. `tag` is its own on this machine, so that the next server finds what is left."""

    def __init__(self, tag: str) -> None:
        self.version = 0
        self.why_not = ""
        self._parents: list[Path] = []
        try:
            self._find(tag)
        except OSError as error:
            self.version = 0
            self._parents = []
            self.why_not = f"{error.filename or _ROOT}: {error.strerror}"

    def _find(self, tag: str) -> None:
        if (_ROOT / "memory").is_dir() and (_ROOT / "pids").is_dir():
            self._parents = [_ROOT / "memory" / tag, _ROOT / "pids" / tag]
            for parent in self._parents:
                parent.mkdir(exist_ok=True)
            self.version = 1
            return
        if not (_ROOT / "cgroup.controllers").is_file():
            self.why_not = f"no control groups are mounted at {_ROOT}"
            return
        own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
        parent = _ROOT / own.lstrip("/")
        if "memory" not in (parent / "cgroup.controllers").read_text().split():
            self.why_not = f"{parent} has no memory controller"
            return
        if own != "/":
            self._step_aside(parent, tag)
        (parent / "cgroup.subtree_control").write_text("+memory +pids")
        tagged = parent / tag
        tagged.mkdir(exist_ok=True)
        (tagged / "cgroup.subtree_control").write_text("+memory +pids")
        self._parents = [tagged]
        self.version = 2

    def _step_aside(self, parent: Path, tag: str) -> None:
        """In version 2 a group with processes has no groups below it: the server itself moves into one beside."""
        if "memory" in (parent / "cgroup.subtree_control").read_text().split():
            return
        if set(_pids(parent)) - {os.getpid()}:
            raise OSError(
                0, "other processes are in the server's control group; start it in one of its own", str(parent)
            )
        beside = parent / f"{tag}-server"
        beside.mkdir(exist_ok=True)
        (beside / "cgroup.procs").write_text("0")

    def sweep(self) -> None:
        """End and remove what an earlier server left."""
        for parent in self._parents:
            for directory in sorted(parent.iterdir()):
                if directory.is_dir():
                    _remove(directory)

    def close(self) -> None:
        for parent in self._parents:
            with contextlib.suppress(OSError):
                parent.rmdir()

    def make(self, number: int, processes: int) -> Group:
        directories = [parent / str(number) for parent in self._parents]
        for directory in directories:
            directory.mkdir(exist_ok=True)
        (directories[-1] / "pids.max").write_text(str(processes))
        if self.version == 1:
            return Group(directories, "memory.limit_in_bytes", "memory.oom_control", "memory.usage_in_bytes")
        with contextlib.suppress(OSError):  # there is no swap
            (directories[0] / "memory.swap.max").write_text("0")
        return Group(directories, "memory.max", "memory.events", "memory.current")


def _pids(directory: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (directory / "cgroup.procs").read_text().split()]
    return []


def _remove(directory: Path) -> None:
    for _ in _patiently():
        for pid in _pids(directory):
            if pid:  # 0: of a namespace that is not seen from here
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            continue  # what was in it is still dying
        return


def _patiently() -> Iterator[None]:
    for _ in range(_REMOVE_ATTEMPTS):
        yield
        time.sleep(_REMOVE_PAUSE_S)
