"""The FUSE protocol as far as a writable volume needs it, beside the layouts of `storage/view/wire.py`."""

import errno
import os
import stat
from enum import IntEnum
from struct import Struct

from aliquot.core.units import KIB, MIB
from aliquot.storage.view import wire


class VolumeOperation(IntEnum):
    """The FUSE operations that a volume answers, by the kernel's numbers."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    RENAME2 = 45


SETATTR_IN = Struct("=IIQQQQQQIIIIIIII")  # valid, -, handle, size, -, atime, mtime, -, their ns, -, mode, -
MAKE_IN = Struct("=II")  # mode, umask; a name follows
RENAME2_IN = Struct("=QII")  # new directory, flags, -; two names follow
OPEN_IN = Struct("=II")  # flags, -
CREATE_IN = Struct("=IIII")  # flags, mode, umask, -; a name follows
WRITE_IN = Struct("=QQIIQII")  # handle, place, bytes, -, -, flags, -; the data follows
WRITE_OUT = Struct("=II")
ATTR_MODE, ATTR_SIZE, ATTR_ATIME, ATTR_MTIME, ATTR_HANDLE = 1 << 0, 1 << 3, 1 << 4, 1 << 5, 1 << 6
ATTR_ATIME_NOW, ATTR_MTIME_NOW = 1 << 7, 1 << 8
NO_REPLACE = 1  # flag of RENAME2

ATOMIC_TRUNCATE = 1 << 3  # an open may have O_TRUNC
BIG_WRITES = 1 << 5
INVALIDATE_CHANGED = 1 << 12  # cached pages are dropped when a file's time or size has changed
_WANTED = (
    wire.ASYNC_READ | ATOMIC_TRUNCATE | BIG_WRITES | INVALIDATE_CHANGED | wire.PARALLEL_DIROPS | wire.MAX_PAGES
    | wire.MORE_FLAGS | wire.DIRECT_MAPPABLE | wire.HAS_RESEND
)  # fmt: skip
MAX_WRITE_BYTES = MIB
BUFFER_BYTES = MAX_WRITE_BYTES + 64 * KIB  # a request with the largest write
_BACKGROUND, _CONGESTED = 64, 48


def init(body: memoryview) -> tuple[bool, bytes]:
    """Return whether files with direct reads may be mapped, and the answer to INIT. Raises `OSError`."""
    given = bytes(body[: wire.INIT_IN.size]).ljust(wire.INIT_IN.size, b"\0")
    major, minor, ahead, flags, more = wire.INIT_IN.unpack(given)
    if major != wire.MAJOR:
        raise OSError(errno.EPROTO, f"the kernel speaks FUSE {major}, and this is {wire.MAJOR}")
    both = (flags | (more << 32 if flags & wire.MORE_FLAGS else 0)) & _WANTED
    reply = wire.INIT_OUT.pack(
        wire.MAJOR, min(minor, wire.MINOR), ahead, both & 0xFFFFFFFF, _BACKGROUND, _CONGESTED, MAX_WRITE_BYTES, 1,
        MAX_WRITE_BYTES // 4096, 0, both >> 32, 0, 0,
    )  # fmt: skip
    return bool(both & wire.DIRECT_MAPPABLE), reply


def attributes(number: int, found: os.stat_result, owner: tuple[int, int]) -> tuple[int, ...]:
    """Return the attributes of a file or directory, which belongs to the user who asks."""
    times = [divmod(each, 1_000_000_000) for each in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
    seconds, parts = [each[0] % (1 << 64) for each in times], [each[1] for each in times]
    if stat.S_ISDIR(found.st_mode):
        mode, links = stat.S_IFDIR | 0o755, 2
    else:
        executable = 0o111 if found.st_mode & 0o100 else 0
        mode, links = stat.S_IFREG | 0o644 | executable, min(1, found.st_nlink)
    return number, found.st_size, found.st_blocks, *seconds, *parts, mode, links, *owner, 0, 4096, 0
