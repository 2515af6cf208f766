"""Paths inside a volume: their bounds, and how they are opened without ever leaving the volume."""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from typing import TypeAlias

from aliquot.runtime import linux

Parts: TypeAlias = tuple[str, ...]  # the names on the way from the volume's folder

MAX_DEPTH = 128  # directories in each other, so that no walk recurses too deeply
MAX_PATH_BYTES = 3000  # the kernel takes 4096, with the folder of the volume before it
_OPENAT2 = 437  # the same number on every architecture
# The kernel follows no link, enters no other mount, and refuses every path that leads out.
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08
_HOW = struct.Struct("<QQQ")


def split_path(path: str) -> Parts:
    """Split a path of a request. Raises an `OSError` whose text says what is wrong with it."""
    parts = tuple(part for part in path.split("/") if part)
    for part in parts:
        if part in {".", ".."} or "\0" in part:
            raise OSError(errno.EINVAL, "it has a part '.' or '..' or a zero byte; a path takes names with / between")
    check_bounds(parts)
    return parts


def check_bounds(parts: Sequence[str], more_names: int = 0, more_bytes: int = 0) -> None:
    """Raise an `OSError` for a path that is too deep or too long. `more` is what there is below it."""
    if len(parts) + more_names > MAX_DEPTH or path_bytes(parts) + more_bytes > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, f"a path takes {MAX_DEPTH} names and {MAX_PATH_BYTES} bytes at most")


def path_bytes(parts: Sequence[str]) -> int:
    return sum(len(os.fsencode(part)) + 1 for part in parts)


def open_beneath(root: int, parts: Parts, flags: int, mode: int = 0) -> int:
    """Open a path below a directory's descriptor. No part of it may be a link. Raises `OSError`."""
    path = os.fsencode("/".join(parts) or ".")
    how = ctypes.create_string_buffer(_HOW.pack(flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, _RESOLVE), _HOW.size)
    return linux.syscall(_OPENAT2, root, ctypes.c_char_p(path), how, _HOW.size, what="openat2")
