"""Landlock: limits the files that a process may use, and blocks signals and abstract sockets to other processes."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

from . import linux

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_BY_VERSION = {
    1: 0x1FFF,
    2: 0x3FFF,
    3: 0x7FFF,
    4: 0x7FFF,
    5: 0xFFFF,
}  # later versions added rename, truncate and device ioctls
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_SCOPES_FROM = 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_FOR_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL

READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE_FILES = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL
EVERYTHING = 0xFFFF
_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices
NO_DEVICES = EVERYTHING & ~_MAKE_DEVICES


@functools.lru_cache(maxsize=None)  # noqa: UP033 - Python 3.9 on
def version() -> int:
    """Return the version of the kernel's Landlock, or 0 if it has none."""
    try:
        return linux.syscall(_CREATE, 0, 0, _VERSION_FLAG, what="landlock_create_ruleset")
    except OSError:
        return 0


def restrict(rules: list[tuple[str, int]]) -> None:
    """Limit this process and all its children to the given rules. Paths that do not exist are skipped."""
    kernel = version()
    handled = _ALL_BY_VERSION[min(kernel, max(_ALL_BY_VERSION))]
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if kernel >= _SCOPES_FROM else 0
    attributes = struct.pack("<QQQ", handled, 0, scopes) if scopes else struct.pack("<Q", handled)
    size = len(attributes)
    ruleset = linux.syscall(
        _CREATE, ctypes.create_string_buffer(attributes, size), size, 0, what="landlock_create_ruleset"
    )
    try:
        for path, access in rules:
            _allow(ruleset, path, access & handled)
        linux.syscall(_RESTRICT, ruleset, 0, what="landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        try:
            _add_rule(ruleset, path, fd, access)
        except OSError as error:
            # It is not a directory. A question for its type would wait for the server of a mount that has none yet.
            if error.errno != errno.EINVAL:
                raise
            _add_rule(ruleset, path, fd, access & _FOR_FILES)
    finally:
        os.close(fd)


def _add_rule(ruleset: int, path: str, fd: int, access: int) -> None:
    rule = ctypes.create_string_buffer(struct.pack("<Qi", access, fd), 12)
    linux.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0, what=f"landlock_add_rule {path}")
