"""Control groups that count and limit the memory and the number of processes of each sandbox.

Version 1 has a tree for each controller, version 2 has one for all (`device/cgroup_files.py`). Without write access to
either, there are no groups.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from aliquot.live.device.cgroup_files import CgroupTree, claim_tree, is_mounted, kill_all, pids_in, release_tree

_ROOT = Path("/sys/fs/cgroup")
_V1_FILES = ("memory.limit_in_bytes", "memory.oom_control", "memory.usage_in_bytes")
_V2_FILES = ("memory.max", "memory.events", "memory.current")
_REMOVE_ATTEMPTS = 100
_REMOVE_PAUSE_S = 0.02


class SandboxCgroup:
    """The control group of one sandbox."""

    def __init__(self, directories: list[Path], names: tuple[str, str, str], processes: int) -> None:
        """`names` are the files for the memory limit, the events and the memory in use."""
        self._names = names
        self._processes = processes
        self._size: int | None = None
        self._use(directories)

    def _use(self, directories: list[Path]) -> None:
        limit, events, usage = self._names
        self._directories = directories
        self._limit = directories[0] / limit
        self._events = directories[0] / events
        self.usage = directories[0] / usage  # the file with the bytes in use
        (directories[-1] / "pids.max").write_text(str(self._processes))

    def open_procs(self) -> tuple[int, ...]:
        """Return descriptors through which a process enters the group by writing `0`. The caller closes them."""
        return tuple(os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in self._directories)

    def limit_memory(self, size: int) -> None:
        self._size = size
        self._limit.write_text(str(size))

    def move(self, directory: Path) -> None:
        """Follow the processes into another group of version 2, which limits and counts them from now on.

        Memory that they had before stays charged to the old group, and to its parent when the old group is removed.
        """
        left = self._directories
        if left == [directory]:
            return
        self._use([directory])
        _forbid_swap(directory)
        if self._size is not None:
            self.limit_memory(self._size)
        for each in left:
            with contextlib.suppress(OSError):
                each.rmdir()

    def ran_out_of_memory(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            for line in self._events.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1]) > 0
        return False

    def used_bytes(self) -> int:
        return int(self.usage.read_text())

    def pids(self) -> list[int]:
        return pids_in(self._directories[0])

    def remove(self) -> None:
        """Kill what is left in the group and remove it. Blocks, so it is called from a thread."""
        for directory in self._directories:
            _remove(directory)


class NodeCgroups:
    """The control groups of a node. The tag is unique on the machine, so that the next server finds leftover groups."""

    def __init__(self, tag: str) -> None:
        self.version = 0
        self.why_not = ""
        self._parents: list[Path] = []
        self._tree: CgroupTree | None = None
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
        if not is_mounted(_ROOT):
            self.why_not = f"no control groups are mounted at {_ROOT}"
            return
        tree = claim_tree(tag, _ROOT)
        missing = [name for name in ("memory", "pids") if name not in tree.controllers]
        if missing:
            release_tree(tree)
            self.why_not = f"{tree.path.parent} has no controller {', '.join(missing)}"
            return
        self._tree = tree
        self._parents = [tree.path]
        self.version = 2

    def sweep(self) -> None:
        """Kill and remove what an earlier server left."""
        for parent in self._parents:
            for directory in sorted(parent.iterdir()):
                if directory.is_dir():
                    _remove(directory)

    def close(self) -> None:
        for parent in self._parents:
            with contextlib.suppress(OSError):
                parent.rmdir()
        if self._tree is not None:
            release_tree(self._tree)

    def make(self, name: int | str, processes: int) -> SandboxCgroup:
        """Make the group of a sandbox, by its number, or of another process, by its name."""
        directories = [parent / str(name) for parent in self._parents]
        for directory in directories:
            directory.mkdir(exist_ok=True)
        if self.version == 1:
            return SandboxCgroup(directories, _V1_FILES, processes)
        _forbid_swap(directories[0])
        return SandboxCgroup(directories, _V2_FILES, processes)


def _forbid_swap(directory: Path) -> None:
    with contextlib.suppress(OSError):  # the kernel has no swap accounting
        (directory / "memory.swap.max").write_text("0")


def _remove(directory: Path) -> None:
    kill_all(directory)
    with contextlib.suppress(OSError):
        for below in [path for path in directory.iterdir() if path.is_dir()]:
            _remove(below)
    for _ in _attempts():
        for pid in pids_in(directory):
            if pid:  # 0 is a process of a namespace that is not visible here
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            continue  # its processes have not ended yet
        return


def _attempts() -> Iterator[None]:
    for _ in range(_REMOVE_ATTEMPTS):
        yield
        time.sleep(_REMOVE_PAUSE_S)
