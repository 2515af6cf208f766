"""Control groups that count and limit the memory and the number of processes of each sandbox, and freeze it.

Version 1 has a tree for each controller, version 2 has one for all (`device/cgroup_files.py`). Without write access to
either, there are no groups.

A process that is frozen by version 1 does not end when it is killed, before it is thawed. So a small process thaws all
groups when the server has ended, whatever ended it.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from aliquot.live.device.cgroup_files import (
    CgroupTree,
    Freezer,
    claim_tree,
    is_mounted,
    kill_all,
    pids_in,
    release_tree,
)
from aliquot.live.device.service_cpu import SERVICES

_ROOT = Path("/sys/fs/cgroup")
_V1_TREES = ("memory", "pids", "freezer", "cpu")  # the last two may be missing
_REMOVE_ATTEMPTS = 100
_REMOVE_PAUSE_S = 0.02
_ALWAYS_FROZEN = "frozen"  # an empty group of version 1: the first frozen group of a machine takes 0.1 ms, others 2 µs
_WORKERS = "workers"  # the groups of processes that serve all sandboxes
_THAW_SCRIPT = 'read _; cd "$1" && for state in */freezer.state; do echo THAWED > "$state"; done'
# The weight of such a process, as a fraction of a tenant's, in the numbers of version 1 and version 2.
_WORKER_SHARES, _WORKER_WEIGHT = 512, 50


class _Files(Struct, frozen=True):
    """The names of files in a control group."""

    members: str  # to which a process of one thread writes `0` to enter the group
    limit: str
    events: str
    usage: str
    peak: str
    freezer: Callable[[Path], Freezer]


# With version 1 not `cgroup.procs`: the kernel lets the writer wait 8 to 15 ms for a lock over all processes.
_V1_FILES = _Files(
    "tasks", "memory.limit_in_bytes", "memory.oom_control", "memory.usage_in_bytes", "memory.max_usage_in_bytes",
    Freezer.of_version_1,
)  # fmt: skip
_V2_FILES = _Files("cgroup.procs", "memory.max", "memory.events", "memory.current", "memory.peak", Freezer.of_version_2)


class SandboxCgroup:
    """The control group of one sandbox."""

    def __init__(self, directories: dict[str, Path], names: _Files, processes: int) -> None:
        """`directories` are the groups by controller. With version 2 it is the same one for all."""
        self._names = names
        self._processes = processes
        self._size: int | None = None
        self._use(directories)

    def _use(self, directories: dict[str, Path]) -> None:
        memory, names = directories["memory"], self._names
        self._directories = list(dict.fromkeys(directories.values()))
        self._limit = memory / names.limit
        self._events = memory / names.events
        self.usage = memory / names.usage  # the file with the bytes in use
        self._peak = memory / names.peak
        self._freezer = names.freezer(directories["freezer"]) if "freezer" in directories else None
        (directories["pids"] / "pids.max").write_text(str(self._processes))

    def open_procs(self) -> tuple[int, ...]:
        """Return descriptors through which a process of one thread enters the group by writing `0`.

        The caller closes them.
        """
        return tuple(os.open(path / self._names.members, os.O_WRONLY | os.O_CLOEXEC) for path in self._directories)

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
        self._use(dict.fromkeys(_V1_TREES, directory))
        _forbid_swap(directory)
        if self._size is not None:
            self.limit_memory(self._size)
        for each in left:
            with contextlib.suppress(OSError):
                each.rmdir()

    def set_frozen(self, *, frozen: bool) -> bool:
        """Freeze or thaw all processes of the group. Return False if that is not possible here. Takes microseconds."""
        if self._freezer is None:
            return False
        if frozen:
            self._freezer.freeze()
        else:
            self._freezer.thaw()
        return True

    def ran_out_of_memory(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            for line in self._events.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1]) > 0
        return False

    def used_bytes(self) -> int:
        return int(self.usage.read_text())

    def peak_bytes(self) -> int | None:
        """Return the most bytes that were in use at once. Before Linux 5.19, version 2 does not tell."""
        try:
            return int(self._peak.read_text())
        except (OSError, ValueError):
            return None

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
        self._parents: dict[str, Path] = {}  # by controller
        self._tree: CgroupTree | None = None
        self._thawer: subprocess.Popen[bytes] | None = None
        try:
            self._find(tag)
        except OSError as error:
            self.version = 0
            self._parents = {}
            self.why_not = f"{error.filename or _ROOT}: {error.strerror}"

    def _find(self, tag: str) -> None:
        if (_ROOT / "memory").is_dir() and (_ROOT / "pids").is_dir():
            for name in ("memory", "pids"):
                self._parents[name] = _ROOT / name / tag
                self._parents[name].mkdir(exist_ok=True)
            for name in ("freezer", "cpu"):
                with contextlib.suppress(OSError):
                    (_ROOT / name / tag).mkdir(exist_ok=True)
                    self._parents[name] = _ROOT / name / tag
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
        self._parents = dict.fromkeys(_V1_TREES, tree.path)
        self.version = 2

    @property
    def freezes(self) -> bool:
        """True when sandboxes can be frozen."""
        return "freezer" in self._parents

    def sweep(self) -> None:
        """Kill and remove what an earlier server left."""
        if self.version == 1 and self.freezes:
            for directory in sorted(self._parents["freezer"].iterdir()):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # a thread may be removing it
                    _kill_pids(directory)  # first, so that it does not go on
                    Freezer.of_version_1(directory).thaw()
        for name, parent in self._parents.items():
            own = parent / _WORKERS if name == "cpu" and self.version == 1 else parent
            for directory in sorted(own.iterdir()) if own.is_dir() else ():
                if directory.is_dir() and directory.name != SERVICES:  # these processes belong to this server
                    _remove(directory)

    def open_freezer(self) -> None:
        """Make frozen groups cheap, and have them thawed when the server ends. Version 2 needs neither."""
        if self.version != 1 or not self.freezes:
            return
        parent = self._parents["freezer"]
        with contextlib.suppress(OSError):
            (parent / _ALWAYS_FROZEN).mkdir(exist_ok=True)
            Freezer.of_version_1(parent / _ALWAYS_FROZEN).freeze()
            self._thawer = subprocess.Popen(  # noqa: S603 - our own script
                ["/bin/sh", "-c", _THAW_SCRIPT, "sh", str(parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )

    def close(self) -> None:
        if self._thawer is not None:
            self._thawer.communicate()
        for name, parent in self._parents.items():
            with contextlib.suppress(OSError):
                if name == "cpu":
                    (parent / _WORKERS).rmdir()
                parent.rmdir()
        if self._tree is not None:
            release_tree(self._tree)

    def make(self, name: int | str, processes: int) -> SandboxCgroup:
        """Make the group of a sandbox, by its number, or of another process, by its name.

        The CPU group of a sandbox depends on its tenant and comes later (`device/tenant_cpu.py`). Other processes get a
        small weight.
        """
        directories = {key: parent / str(name) for key, parent in self._parents.items() if key != "cpu"}
        if self.version == 2:  # noqa: PLR2004 - the kernel's versions
            directories["memory"].mkdir(exist_ok=True)
            _forbid_swap(directories["memory"])
            if isinstance(name, str):
                with contextlib.suppress(OSError):  # there is no controller `cpu`
                    (directories["memory"] / "cpu.weight").write_text(str(_WORKER_WEIGHT))
            return SandboxCgroup(directories, _V2_FILES, processes)
        if isinstance(name, str) and "cpu" in self._parents:
            directories["cpu"] = self._parents["cpu"] / _WORKERS / name
        for directory in directories.values():
            directory.mkdir(parents=True, exist_ok=True)
        if "cpu" in directories:
            (directories["cpu"] / "cpu.shares").write_text(str(_WORKER_SHARES))
        return SandboxCgroup(directories, _V1_FILES, processes)


def _forbid_swap(directory: Path) -> None:
    with contextlib.suppress(OSError):  # the kernel has no swap accounting
        (directory / "memory.swap.max").write_text("0")


def _remove(directory: Path) -> None:
    kill_all(directory)
    with contextlib.suppress(OSError):
        for below in [path for path in directory.iterdir() if path.is_dir()]:
            _remove(below)
    for _ in _attempts():
        _kill_pids(directory)
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            continue  # its processes have not ended yet
        return


def _kill_pids(directory: Path) -> None:
    for pid in pids_in(directory):
        if pid:  # 0 is a process of a namespace that is not visible here
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _attempts() -> Iterator[None]:
    for _ in range(_REMOVE_ATTEMPTS):
        yield
        time.sleep(_REMOVE_PAUSE_S)
