"""Files of control groups: counters, processes, and the server's own part of the tree of version 2.

The kernel's rules for version 2 are in Documentation/admin-guide/cgroup-v2.rst. A controller works in the groups below
a group only if that group delegates it, in `cgroup.subtree_control`. A group that delegates controllers has no
processes of its own, unless it is the root. So the server moves into a group beside those of its sandboxes.
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
    """The part of the tree that belongs to a server."""

    path: Path
    controllers: tuple[str, ...]  # those of the groups below it


def is_mounted(root: Path | None = None) -> bool:
    return ((root or ROOT) / "cgroup.controllers").is_file()


def claim_tree(tag: str, root: Path | None = None, own: str | None = None) -> CgroupTree:
    """Make the server's part of the tree, or find it again. `own` is this process's group. Raises `OSError`."""
    root = root or ROOT
    parent = root / _start_group(tag, own).lstrip("/")
    controllers = [name for name in WANTED if name in (parent / "cgroup.controllers").read_text().split()]
    try:
        delegate_controllers(parent, controllers)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _move_server(parent, tag)
        delegate_controllers(parent, controllers)
    path = parent / tag
    path.mkdir(exist_ok=True)
    delegate_controllers(path, controllers)
    return CgroupTree(path, tuple(controllers))


def delegate_controllers(directory: Path, controllers: Sequence[str]) -> None:
    """Enable the controllers in the groups below."""
    control = directory / "cgroup.subtree_control"
    missing = [name for name in controllers if name not in control.read_text().split()]
    if missing:
        control.write_text(" ".join(f"+{name}" for name in missing))


def release_tree(tree: CgroupTree) -> None:
    """Remove the server's part of the tree if it is empty, and move the server back to the group it came from."""
    parent = tree.path.parent
    with contextlib.suppress(OSError):
        tree.path.rmdir()
        group = server_group(tree)
        if group.is_dir() and [path for path in parent.iterdir() if path.is_dir()] == [group]:
            control = parent / "cgroup.subtree_control"
            control.write_text(" ".join(f"-{name}" for name in control.read_text().split()))
            (parent / "cgroup.procs").write_text("0")
            group.rmdir()


def server_group(tree: CgroupTree) -> Path:
    """Return the group into which the server has moved, if it had to."""
    return _server_group(tree.path.parent, tree.path.name)


def pids_in(directory: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (directory / "cgroup.procs").read_text().split()]
    return []


def kill_all(directory: Path) -> bool:
    """Kill everything in the group and below it. Return False on kernels before 5.14, which cannot."""
    try:
        (directory / "cgroup.kill").write_text("1")
    except OSError:
        return False
    return True


def _start_group(tag: str, own: str | None) -> str:
    """Return the group in which the server was started, even if it has moved since."""
    if own is None:
        own = _SELF.read_text().rpartition("::")[2].strip()
    return own.removesuffix(f"/{tag}-server") or "/"


def _server_group(parent: Path, tag: str) -> Path:
    return parent / f"{tag}-server"


def _move_server(parent: Path, tag: str) -> None:
    if set(pids_in(parent)) - {os.getpid()}:
        raise OSError(errno.EBUSY, _OWN_GROUP, str(parent))
    group = _server_group(parent, tag)
    group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text("0")


class Freezer(Struct, frozen=True):
    """The file that freezes the processes of a group, and the texts for it."""

    file: Path
    frozen: str
    thawed: str

    @classmethod
    def of_version_1(cls, group: Path) -> "Freezer":
        return cls(group / "freezer.state", "FROZEN", "THAWED")

    @classmethod
    def of_version_2(cls, group: Path) -> "Freezer":
        return cls(group / "cgroup.freeze", "1", "0")

    def freeze(self) -> None:
        self._write(self.frozen)

    def thaw(self) -> None:
        self._write(self.thawed)

    def _write(self, text: str) -> None:
        """Write the text without a file object, which would take several times as long. A call waits for a thaw."""
        try:
            fd = os.open(self.file, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # the processes have ended, and the group with them
            return
        try:
            os.write(fd, text.encode())
        except OSError as error:
            if error.errno != errno.ENODEV:  # the group was removed after the file was opened
                raise
        finally:
            os.close(fd)


class KernelCounter:
    """A number in a file of the kernel. The file stays open, because it may be read a hundred times a second."""

    __slots__ = ("_fd", "_skip")

    def __init__(self, path: Path, key: str = "") -> None:
        """Open the file. `key` is the first word of its first line. Raises `OSError`."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._skip = len(key)

    def read(self) -> int:
        """Return the current value. Raises `OSError` when the group has been removed."""
        return int(os.pread(self._fd, 48, 0).partition(b"\n")[0][self._skip :])

    def close(self) -> None:
        os.close(self._fd)
