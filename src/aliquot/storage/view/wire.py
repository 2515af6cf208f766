"""The FUSE protocol on `/dev/fuse`, as far as a read-only view needs it.

The layouts are those of the kernel's `include/uapi/linux/fuse.h`, protocol 7, in native byte order. A request is one
read and an answer one write, each with a header and a body.
"""

import errno
import re
from enum import IntEnum
from struct import Struct

from aliquot.core.units import KIB, MIB


class Operation(IntEnum):
    """The FUSE operations that a view answers, by the kernel's numbers."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    OPEN = 14
    READ = 15
    STATFS = 17
    RELEASE = 18
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    READDIRPLUS = 44


# Operations that write. The mount is read-only, so the kernel itself refuses most of them.
CHANGES = frozenset({4, 6, 8, 9, 10, 11, 12, 13, 16, 21, 24, 35, 43, 45, 47})

REQUEST = Struct("=IIQQIIII")  # bytes, operation, unique, inode, uid, gid, pid, -
ANSWER = Struct("=IiQ")  # bytes, -errno, unique

INIT_IN = Struct("=IIIII")  # major, minor, max bytes read ahead, flags, more flags
INIT_OUT = Struct("=IIIIHHIIHHIIH22x")
_ATTRIBUTES = "QQQQQQIIIIIIIIII"  # inode, size, blocks, 3 times, their ns, mode, links, uid, gid, -, block size, -
ATTR_OUT = Struct("=QII" + _ATTRIBUTES)  # valid s, ns, -
ENTRY_OUT = Struct("=QQQQII" + _ATTRIBUTES)  # inode, generation, name valid s, attributes valid s, their ns
DIRENT = Struct("=QQII")  # inode, next place, bytes of the name, type
OPEN_OUT = Struct("=QIi")  # handle, flags, backing
READ_IN = Struct("=QQI")  # handle, place, bytes
HANDLE = Struct("=Q")
FORGET_ONE = Struct("=QQ")  # inode, times
BATCH_HEAD = Struct("=II")
STATFS_OUT = Struct("=QQQQQIIII24x")  # blocks, free, available, files, free, block size, name bytes, fragment size, -

# Flags of INIT that are requested if the kernel offers them.
ASYNC_READ = 1 << 0
READDIRPLUS = 1 << 13
READDIRPLUS_AUTO = 1 << 14
PARALLEL_DIROPS = 1 << 18
MAX_PAGES = 1 << 22
MORE_FLAGS = 1 << 30
DIRECT_MAPPABLE = 1 << 36  # files with direct reads may be mapped
PASSTHROUGH = 1 << 37  # the kernel reads the cached file directly
HAS_RESEND = 1 << 39
WANTED = (
    ASYNC_READ | READDIRPLUS | READDIRPLUS_AUTO | PARALLEL_DIROPS | MAX_PAGES | MORE_FLAGS | DIRECT_MAPPABLE
    | PASSTHROUGH | HAS_RESEND
)  # fmt: skip

# Flags of an open file.
OPEN_DIRECT = 1 << 0
OPEN_KEEP = 1 << 1  # keep the cached pages
OPEN_PASSTHROUGH = 1 << 7

MAJOR, MINOR = 7, 40
MAX_READ_BYTES = MIB
_PAGES = MAX_READ_BYTES // 4096
_WRITE_BYTES = 4096  # never used; the smallest permitted value
_BACKGROUND, _CONGESTED = 64, 48
STACK = 2  # the cache may lie on a stacked file system

# The ioctl numbers of the device, as <linux/ioctl.h> builds them: write, size, type 229, number.
BACKING_OPEN = 1 << 30 | 16 << 16 | 229 << 8 | 1
BACKING_CLOSE = 1 << 30 | 4 << 16 | 229 << 8 | 2
BACKING_MAP = Struct("=iIQ")
_RESEND = 7  # notification: send unanswered requests again

MAX_REQUEST_BYTES = 64 * KIB  # enough for a read-only view; the kernel splits longer lists of forgotten inodes

_DIRECTORY, _FILE = 0o040555, 0o100444
DIRECTORY_TYPE, FILE_TYPE = 4, 8
_PADDING = b"\0" * 8


def answer(unique: int, body: bytes) -> tuple[bytes, bytes]:
    return ANSWER.pack(ANSWER.size + len(body), 0, unique), body


def refusal(unique: int, code: int) -> bytes:
    return ANSWER.pack(ANSWER.size, -code, unique)


def resend() -> bytes:
    return ANSWER.pack(ANSWER.size, _RESEND, 0)


def resends(release: str) -> bool:
    """Return whether a kernel of this release (`uname -r`) resends unanswered requests: Linux 6.9 and later."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (6, 9)


def init(body: bytes) -> tuple[int, bytes]:
    """Return the flags that both sides support, and the answer to INIT. Raises `OSError` for another protocol."""
    major, minor, ahead, flags, *more = INIT_IN.unpack(body[: INIT_IN.size].ljust(INIT_IN.size, b"\0"))
    if major != MAJOR:
        raise OSError(errno.EPROTO, f"the kernel speaks FUSE {major}, and this is {MAJOR}")
    both = (flags | (more[0] << 32 if flags & MORE_FLAGS else 0)) & WANTED
    depth = STACK if both & PASSTHROUGH else 0
    reply = INIT_OUT.pack(
        MAJOR, min(minor, MINOR), ahead, both & 0xFFFFFFFF, _BACKGROUND, _CONGESTED, _WRITE_BYTES, 1, _PAGES, 0,
        both >> 32, depth, 0,
    )  # fmt: skip
    return both, reply


def attributes(inode: int, size: int, mtime_s: float, *, directory: bool, block: int) -> tuple[int, ...]:
    """Return the values of `_ATTRIBUTES` for a read-only file or directory."""
    seconds, part = divmod(int(mtime_s * 1_000_000_000), 1_000_000_000)
    seconds %= 1 << 64  # a time before 1970 is negative for the kernel
    mode, links = (_DIRECTORY, 2) if directory else (_FILE, 1)
    blocks = (size + 511) // 512
    return inode, size, blocks, seconds, seconds, seconds, part, part, part, mode, links, 0, 0, 0, block, 0


def dirent(inode: int, place: int, name: bytes, kind: int) -> bytes:
    """Return a directory entry, padded to a multiple of eight bytes."""
    return DIRENT.pack(inode, place, len(name), kind) + name + _PADDING[: -len(name) % 8]
