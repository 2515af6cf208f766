"""Make a root directory for zygotes and sandboxes: the system and the interpreter, read-only, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from . import linux

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/nix/store", "/sys/devices/system")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DATASETS, VOLUMES = "/datasets", "/volumes"  # where a sandbox sees them
_SCRATCH = "/tmp"  # noqa: S108
_BASE = "/tmp"  # noqa: S108 - any directory will do: the mount on it is private
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
_RESTRICTED = linux.MS_NOSUID | linux.MS_NODEV


def change_root(
    visible: list[str],
    hidden: str,
    writable: list[str] | None = None,
    devices: list[str] | None = None,
    masked: list[str] | None = None,
    *,
    views: list[str] | None = None,
    scratch: tuple[int, int] | None = None,
) -> None:
    """Replace the root by an empty one with the visible paths in it, where they were; needs a mount namespace.

    Paths below the hidden one are left out, unless they are themselves visible or writable. There are the devices that
    every program needs, and the given ones. Masked files are empty. `views` are mount points for a sandbox's
    datasets and volumes. With `scratch`, an owner and a size in bytes, there are an empty /tmp and /dev/shm in memory,
    and /proc shows the process's own pid namespace. Otherwise it is still the machine's.
    """
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    # First a root that contains both the old root and the new one, so that their paths cannot collide.
    linux.mount("tmpfs", _BASE, "tmpfs", _RESTRICTED, "mode=755")
    os.chdir(_BASE)
    for name in ("old", "new"):
        Path(name).mkdir(mode=0o755)
    linux.pivot_root(".", "old")
    os.chdir("/")
    linux.mount("tmpfs", "/new", "tmpfs", _RESTRICTED, "mode=755")
    if scratch is not None:
        Path("/new/tmp").mkdir()
        linux.mount("tmpfs", "/new/tmp", "tmpfs", _RESTRICTED, _scratch_options(*scratch, "711"))
    _fill("/old", "/new", visible, hidden, own_proc=scratch is not None)
    if scratch is not None and _SHARED_MEMORY not in visible:
        linux.mount(
            "tmpfs", f"/new{_SHARED_MEMORY}", "tmpfs", _RESTRICTED | linux.MS_NOEXEC, f"mode=1777,size={scratch[1]}"
        )
    for path in devices or ():
        if os.path.exists("/old" + path):  # noqa: PTH110
            _bind("/old" + path, "/new" + path)
    for path in writable or ():
        _bind("/old" + path, "/new" + path)
    _mask(masked or [])
    for path in views or ():
        Path("/new" + path).mkdir(exist_ok=True)
    linux.mount("none", "/new", flags=linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | _RESTRICTED)
    os.chdir("/new")
    linux.pivot_root(".", ".")
    linux.unmount(".")
    os.chdir("/")


def _mask(paths: list[str]) -> None:
    """Cover files with an empty one. A link is not covered, but the file that it leads to is another path."""
    Path("/empty").touch(mode=0o444)
    for path in paths:
        target = "/new" + path
        if os.path.isfile(target) and not os.path.islink(target):  # noqa: PTH113, PTH114
            linux.mount("/empty", target, flags=linux.MS_BIND)
            linux.restrict_mounts(target)


def _scratch_options(owner: int, size: int, mode: str = "700") -> str:
    return f"mode={mode},uid={owner},gid={owner},size={size},nr_inodes=100000"


def _fill(old: str, new: str, visible: list[str], hidden: str, *, own_proc: bool) -> None:
    done: list[str] = []
    places = {os.path.normpath(path) for path in (*SYSTEM, *visible)}
    for path in sorted(places | {hidden}):
        covered_by = max((other for other in done if _is_below(path, other)), key=len, default="")
        if path == hidden:
            if covered_by:
                linux.mount("tmpfs", new + path, "tmpfs", _RESTRICTED, "mode=755")
                done.append(path)
        elif not covered_by or covered_by == hidden:
            _show(old + path, new + path)
            done.append(path)
    _show_resolver(old, new)
    Path(new, "tmp").mkdir(exist_ok=True)
    Path(new, "proc").mkdir(exist_ok=True)
    if own_proc:
        mount_proc(new + "/proc")
    else:  # a new /proc may only be mounted where an old one can be seen
        linux.mount(old + "/proc", new + "/proc", flags=linux.MS_BIND | linux.MS_REC)
    _bind_devices(old, new)


def _is_below(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")


def _show(source: str, target: str) -> None:
    if os.path.islink(source):  # noqa: PTH114 - paths are strings here, because the roots are prefixes
        _make_parents(target)
        Path(target).symlink_to(os.readlink(source))  # noqa: PTH115 - unresolved
        return
    if not os.path.exists(source):  # noqa: PTH110
        return
    _bind(source, target)
    linux.restrict_mounts(target)


def _bind(source: str, target: str) -> None:
    _make_parents(target)
    if os.path.isdir(source):  # noqa: PTH112
        Path(target).mkdir(exist_ok=True)
    else:
        Path(target).touch()
    linux.mount(source, target, flags=linux.MS_BIND | linux.MS_REC)


def _make_parents(target: str) -> None:
    """Make the directories above the target. Sandboxes can pass through them, but not list them."""
    parent = Path(target).parent
    for directory in reversed([each for each in (parent, *parent.parents) if not each.exists()]):
        directory.mkdir()
        directory.chmod(0o711)


def _show_resolver(old: str, new: str) -> None:
    """Show the target of /etc/resolv.conf if it is a link that leads out of /etc."""
    link = Path(old, "etc/resolv.conf")
    if link.is_symlink():
        target = os.path.normpath(os.path.join("/etc", os.readlink(link)))  # noqa: PTH115, PTH118
        if not _is_below(target, "/etc") and not os.path.lexists(new + target):
            _show(old + target, new + target)


def _bind_devices(old: str, new: str) -> None:
    Path(new, "dev/shm").mkdir(parents=True)
    for name in DEVICES:
        if os.path.exists(f"{old}/dev/{name}"):  # noqa: PTH110
            _bind(f"{old}/dev/{name}", f"{new}/dev/{name}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        Path(new, "dev", name).symlink_to(f"/proc/self/fd/{number}")
    Path(new, "dev/fd").symlink_to("/proc/self/fd")


def mount_proc(target: str = "/proc") -> None:
    """Mount the /proc of the process's own pid namespace."""
    linux.mount("proc", target, "proc", _RESTRICTED | linux.MS_NOEXEC)


def mount_scratch(owner: int, size: int, visible: list[str]) -> None:
    """Mount an empty /tmp and an empty /dev/shm in memory. They are limited in size and end with the last process.

    Visible paths in /tmp, for example an interpreter, are still there. So is /dev/shm if it is a visible path.
    """
    # Descriptors still reach these paths when the new /tmp covers them.
    kept = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in visible if _is_below(path, _SCRATCH)]
    linux.mount("tmpfs", _SCRATCH, "tmpfs", _RESTRICTED, _scratch_options(owner, size))
    if _SHARED_MEMORY not in visible:
        linux.mount("tmpfs", _SHARED_MEMORY, "tmpfs", _RESTRICTED | linux.MS_NOEXEC, f"mode=1777,size={size}")
    for path, fd in kept:
        if not os.path.exists(path):  # noqa: PTH110 - a mount above it may contain it
            _bind(f"/proc/self/fd/{fd}", path)
        os.close(fd)
