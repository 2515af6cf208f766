"""A filter of system calls: denies those that functions do not need and that kernel exploits often used.

It is a deny list, so that libraries keep working. A denied call fails with EPERM, as it does without privileges.
Sockets are of the families that a network namespace contains.

A zygote gets the same filter before its imports, with two exceptions. Filters are inherited, and a forked sandbox has
to enter the namespaces that were prepared for it (`setns`) and to begin a pid namespace (`unshare`).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import socket
import struct

from . import linux

# name: number on x86_64 and on aarch64 (None: the call does not exist there)
_DENIED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# audit number, column, clone, socket
_ARCHITECTURES = {"x86_64": (0xC000003E, 0, 56, 41), "aarch64": (0xC00000B7, 1, 220, 198)}
_CLONE3 = 435
_NAMESPACES = (
    linux.CLONE_NEWNS | linux.CLONE_NEWCGROUP | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC | linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID | linux.CLONE_NEWNET
)  # fmt: skip

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in the kernel's seccomp_data
_X32 = 0x40000000  # numbers of the x32 calling convention: the same calls again
_PR_SET_SECCOMP, _FILTER_MODE = 22, 2


def is_known_machine() -> bool:
    return linux.MACHINE in _ARCHITECTURES


# Namespaces that a sandbox enters after it was forked from its zygote.
_PREPARED = (
    linux.CLONE_NEWUSER, linux.CLONE_NEWNS, linux.CLONE_NEWIPC, linux.CLONE_NEWUTS, linux.CLONE_NEWNET
)  # fmt: skip
# The exceptions of a zygote, by the place of the argument that is checked and its allowed values.
_ZYGOTE_CALLS = {
    "setns": (_SECOND_ARGUMENT, _PREPARED),
    "unshare": (_FIRST_ARGUMENT, (linux.CLONE_NEWPID,)),
}
# Other families of sockets, such as that of virtual machines (AF_VSOCK), lead out of the network namespace.
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, value


def _allow_only(offset: int, values: tuple[int, ...], refusal: int = errno.EPERM) -> list[_Instruction]:
    """Return instructions that allow a call if its argument at this offset is one of the values."""
    checks = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(_LOAD, 0, 0, offset), *checks, (_RETURN, 0, 0, _REFUSE | refusal), (_RETURN, 0, 0, _ALLOW)]


SANDBOX, ZYGOTE, AFTER_ZYGOTE = "sandbox", "zygote", "after zygote"  # whose filter it is


@functools.lru_cache(maxsize=None)  # noqa: UP033 - Python 3.9 on
def program(owner: str) -> bytes:
    """Return a filter in the kernel's format. A zygote makes it once for all its sandboxes.

    A sandbox that was forked after its zygote got a filter (`AFTER_ZYGOTE`) has that one, too. So its own contains only
    the exceptions of the zygote.
    """
    return _closing_program() if owner == AFTER_ZYGOTE else _whole_program(for_zygote=owner == ZYGOTE)


def _closing_program() -> bytes:
    column = _ARCHITECTURES[linux.MACHINE][1]
    numbers = [_DENIED[name][column] or 0 for name in _ZYGOTE_CALLS]
    code: list[_Instruction] = [(_LOAD, 0, 0, _NUMBER)]
    code += [(_JUMP_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _whole_program(*, for_zygote: bool) -> bytes:
    audit, column, clone, new_socket = _ARCHITECTURES[linux.MACHINE]
    numbers = sorted(number for row in _DENIED.values() if (number := row[column]) is not None)
    # The tail: allow, refuse, "no such call", then the check of clone's flags.
    tail: list[_Instruction] = [
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_SET, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    refuse, unknown, look = 1, 2, 3
    conditions: list[tuple[int, int | None, int | None, int]] = [(_JUMP_EQUAL, len(tail), None, new_socket)]
    tail += _allow_only(_FIRST_ARGUMENT, _FAMILIES, errno.EAFNOSUPPORT)
    if for_zygote:
        for name, (offset, values) in _ZYGOTE_CALLS.items():
            conditions.append((_JUMP_EQUAL, len(tail), None, _DENIED[name][column] or 0))
            tail += _allow_only(offset, values)
    head: list[tuple[int, int | None, int | None, int]] = [
        (_LOAD, None, None, _ARCHITECTURE),
        (_JUMP_EQUAL, None, refuse, audit),
        (_LOAD, None, None, _NUMBER),
        (_JUMP_AT_LEAST, refuse, None, _X32),
        # A filter cannot read its flags, which are behind a pointer. Libraries fall back to clone.
        (_JUMP_EQUAL, unknown, None, _CLONE3),
        (_JUMP_EQUAL, look, None, clone),
        *conditions,
        *[(_JUMP_EQUAL, refuse, None, number) for number in numbers],
    ]
    code = b""
    for index, (operation, true, false, value) in enumerate(head):
        # A jump in `head` is an index into the tail. None is the next instruction.
        distance = len(head) - index - 1
        jumps = [0 if place is None else distance + place for place in (true, false)]
        code += struct.pack("<HBBI", operation, *jumps, value)
    return code + b"".join(struct.pack("<HBBI", *instruction) for instruction in tail)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def install(owner: str = SANDBOX) -> None:
    """Install the filter for this process and all its children. Needs `forbid_new_privileges`, or privileges."""
    code = program(owner)
    buffer = ctypes.create_string_buffer(code, len(code))
    described = _FilterProgram(len(code) // 8, ctypes.addressof(buffer))
    linux.prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.addressof(described), what="prctl(SECCOMP)")
