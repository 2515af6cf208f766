"""Linux system calls that Python does not wrap, through ctypes. Each raises an `OSError` that names the call."""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64
_NO_SETUID_FIXUP = 4
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_MOUNT_ATTR_NODEV = 4
_MOUNT_ATTR_NOEXEC = 8

MACHINE = os.uname().machine
# Newer system calls have the same number on all architectures.
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(MACHINE, -1)
_MOUNT_SETATTR = 442
_MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT = 429, 430, 431, 432
_SET_FLAG, _SET_STRING, _SET_DESCRIPTOR, _CREATE = 0, 1, 5, 6
_CLOEXEC = 1
_FROM_DESCRIPTOR = 4

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *args: object, what: str) -> int:
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _checked(_libc.syscall(ctypes.c_long(number), *words), what)


def write_file(path: str, text: str) -> None:
    """Write a short text to a file of the kernel. A file object would touch many more pages of a new process."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def enter_namespace(fd: int, flags: int) -> None:
    _checked(_libc.setns(fd, flags), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _checked(result, f"mount {kind or source} on {target}")


def unmount(target: str) -> None:
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    if _PIVOT_ROOT < 0:
        raise OSError(f"pivot_root: its number on {MACHINE} is not known here")
    syscall(_PIVOT_ROOT, ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()), what="pivot_root")


def restrict_mounts(path: str, *, devices: bool = False) -> None:
    """Make a mount and all mounts below it read-only, and disable set-user-id programs and by default devices."""
    flags = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | (0 if devices else _MOUNT_ATTR_NODEV)
    attributes = ctypes.create_string_buffer(struct.pack("<QQQQ", flags, 0, 0, 0), 32)
    syscall(
        _MOUNT_SETATTR, _AT_FDCWD, ctypes.c_char_p(path.encode()), _AT_RECURSIVE, attributes, 32,
        what=f"mount_setattr {path}",
    )  # fmt: skip


def detached_mount(kind: str, options: dict[str, str | None], *, writable: bool = False) -> int:
    """Make a mount that is not attached yet, and return its descriptor. Options without a value are flags."""
    context = syscall(_FSOPEN, ctypes.c_char_p(kind.encode()), _CLOEXEC, what=f"fsopen {kind}")
    try:
        for name, value in options.items():
            command, text = (_SET_FLAG, None) if value is None else (_SET_STRING, ctypes.c_char_p(value.encode()))
            syscall(_FSCONFIG, context, command, ctypes.c_char_p(name.encode()), text, 0, what=f"fsconfig {name}")
        syscall(_FSCONFIG, context, _CREATE, None, None, 0, what=f"fsconfig {kind}")
        flags = (0 if writable else _MOUNT_ATTR_RDONLY) | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
        return syscall(_FSMOUNT, context, _CLOEXEC, flags, what=f"fsmount {kind}")
    finally:
        os.close(context)


def detached_proc(namespace: int) -> int:
    """Make a mount of the /proc of a pid namespace below our own, and return its descriptor. Needs Linux 6.17."""
    context = syscall(_FSOPEN, ctypes.c_char_p(b"proc"), _CLOEXEC, what="fsopen proc")
    try:
        syscall(_FSCONFIG, context, _SET_DESCRIPTOR, ctypes.c_char_p(b"pidns"), None, namespace, what="fsconfig pidns")
        syscall(_FSCONFIG, context, _CREATE, None, None, 0, what="fsconfig proc")
        flags = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOEXEC
        return syscall(_FSMOUNT, context, _CLOEXEC, flags, what="fsmount proc")
    finally:
        os.close(context)


def attach_mount(mount: int, target: str) -> None:
    """Attach a detached mount at a path."""
    source, place = ctypes.c_char_p(b""), ctypes.c_char_p(target.encode())
    syscall(_MOVE_MOUNT, mount, source, _AT_FDCWD, place, _FROM_DESCRIPTOR, what=f"move_mount to {target}")


_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def prctl(option: int, *args: int, what: str) -> int:
    return _checked(_libc.prctl(option, *(*args, 0, 0, 0, 0)[:4]), what)


def die_with_parent(signal: int) -> None:
    """Have the kernel send a signal when the parent thread ends. A change of credentials undoes this."""
    prctl(_PR_SET_PDEATHSIG, signal, what="prctl(PDEATHSIG)")


def adopt_orphans() -> None:
    """Make descendants whose parent has ended children of this process, instead of those of init."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1, what="prctl(CHILD_SUBREAPER)")


def set_dumpable(*, dumpable: bool = True) -> None:
    """Give the process its own /proc files back after a change of credentials, or protect its memory from others."""
    prctl(_PR_SET_DUMPABLE, int(dumpable), what="prctl(DUMPABLE)")


def forbid_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1, what="prctl(NO_NEW_PRIVS)")


def renounce_capabilities() -> None:
    """Prevent the process from gaining capabilities. It keeps those that it has.

    Call it before the process changes to an ordinary user, who may not do this.
    """
    drop = _libc.prctl
    for capability in range(_CAPABILITIES):
        if drop(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # EINVAL: past the last one; EPERM: there are none to drop


def keep_capabilities() -> None:
    """Let the process keep its capabilities when it changes its user."""
    prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, what="prctl(SECUREBITS)")


def drop_capabilities() -> None:
    """Drop all capabilities at once."""
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, what="prctl(CAP_AMBIENT)")
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION, 0), 8)
    _checked(_libc.capset(header, ctypes.create_string_buffer(24)), "capset")
