"""Version 2's one tree of control groups: which part of it is a server's own, and what may be controlled there.

The kernel's rules (Documentation/admin-guide/cgroup-v2.rst): a controller works in the groups below one only if that
one passes it on, by `cgroup.subtree_control`, which takes what is in `cgroup.controllers`; and a group that passes any
on, unless it is the root, has no processes of its own. So the server moves into a group beside those of its sandboxes.
"""

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

ROOT = Path("/sys/fs/cgroup")
WANTED = ("cpu", "cpuset", "memory", "pids")
_SELF = Path("/proc/self/cgroup")
_OWN_GROUP = (
    "other processes are in the server's control group; start it in one of its own, "
    "as with systemd-run --scope -p Delegate=yes"
)


class CgroupTree(Struct, frozen=True):
    """A server's own part of the tree."""

    path: Path
    controllers: tuple[str, ...]  # that the groups below it have


def is_mounted(root: Path | None = None) -> bool:
    return ((root or ROOT) / "cgroup.controllers").is_file()


def claim_tree(tag: str, root: Path | None = None, own: str | None = None) -> CgroupTree:
    """Make it, or find it again. `own` is the group this process is in. Raises `OSError` where it may not be made."""
    root = root or ROOT
    parent = root / _home(tag, own).lstrip("/")
    controllers = [name for name in WANTED if name in (parent / "cgroup.controllers").read_text().split()]
    try:
        delegate_controllers(parent, controllers)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _step_aside(parent, tag)
        delegate_controllers(parent, controllers)
    path = parent / tag
    path.mkdir(exist_ok=True)
    delegate_controllers(path, controllers)
    return CgroupTree(path, tuple(controllers))


def delegate_controllers(directory: Path, controllers: Sequence[str]) -> None:
    """Let the groups below have these."""
    control = directory / "cgroup.subtree_control"
    missing = [name for name in controllers if name not in control.read_text().split()]
    if missing:
        control.write_text(" ".join(f"+{name}" for name in missing))


def release_tree(mine: CgroupTree) -> None:
    """Leave nothing behind, as far as there is nothing left in it: the server goes back to where it came from."""
    tag, parent = mine.path.name, mine.path.parent
    with contextlib.suppress(OSError):
        mine.path.rmdir()
        beside = _beside(parent, tag)
        if beside.is_dir() and [path for path in parent.iterdir() if path.is_dir()] == [beside]:
            control = parent / "cgroup.subtree_control"
            control.write_text(" ".join(f"-{name}" for name in control.read_text().split()))
            (parent / "cgroup.procs").write_text("0")
            beside.rmdir()


def pids_in(directory: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (directory / "cgroup.procs").read_text().split()]
    return []


def kill_all(directory: Path) -> bool:
    """Everything in it and below it, however fast it forks. False: this kernel has no such thing (before 5.14)."""
    try:
        (directory / "cgroup.kill").write_text("1")
    except OSError:
        return False
    return True


def _home(tag: str, own: str | None) -> str:
    """The group in which the server was started, though it may have stepped aside since."""
    if own is None:
        own = _SELF.read_text().rpartition("::")[2].strip()
    return own.removesuffix(f"/{tag}-server") or "/"


def _beside(parent: Path, tag: str) -> Path:
    return parent / f"{tag}-server"


def _step_aside(parent: Path, tag: str) -> None:
    if set(pids_in(parent)) - {os.getpid()}:
        raise OSError(errno.EBUSY, _OWN_GROUP, str(parent))
    beside = _beside(parent, tag)
    beside.mkdir(exist_ok=True)
    (beside / "cgroup.procs").write_text("0")


class KernelCounter:
    __slots__ = ("_fd", "_skip")

    def __init__(self, path: Path, key: str = "") -> None:
        """`key`: what its first line begins with. Raises `OSError` when there is none."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._skip = len(key)

    def read(self) -> int:
        """Raises `OSError` when its group is gone."""
        return int(os.pread(self._fd, 48, 0).partition(b"\n")[0][self._skip :])

    def close(self) -> None:
        os.close(self._fd)
