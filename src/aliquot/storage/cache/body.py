"""The bytes of one cached file on disk: one descriptor for all who read or write them, open as long as any does."""

import ctypes
import errno
import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import new
from pathlib import Path
from threading import Lock
from zlib import crc32

from aliquot.core.units import MIB
from aliquot.storage.errors import OriginError

DIGEST_BYTES = 4
READ_BYTES = MIB
_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]


@lru_cache(maxsize=64)
def digest_of_zeros(length: int) -> bytes:
    return crc32(bytes(length)).to_bytes(DIGEST_BYTES, "big")


class Filling:
    """A chunk that is written as it comes; if its place was never written to, all but the zeros, which are there."""

    def __init__(self, fd: int, offset: int, *, is_fresh: bool) -> None:
        self._fd = fd
        self.is_fresh = is_fresh
        self._offset = offset
        self._crc = 0
        self.length = 0
        self.is_hole = True

    def add(self, piece: memoryview) -> None:
        self._crc = crc32(piece, self._crc)
        if not (self.is_fresh and _is_zeros(piece)):
            self.is_hole = False
            write(self._fd, piece, self._offset + self.length)
        self.length += len(piece)

    @property
    def digest(self) -> bytes:
        # Against accidents, at a quarter of the time a cryptographic one takes; an origin's own is held against all.
        return self._crc.to_bytes(DIGEST_BYTES, "big")


def _is_zeros(piece: memoryview) -> bool:
    if piece[0] or piece[-1] or piece[len(piece) // 2]:
        return False
    return bytes(piece).count(0) == len(piece)


class Body:
    """Locks are its own: opening and closing happen in any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._fd = -1
        self._users = 0

    def create(self, size: int) -> None:
        """An empty file of that size which takes no room yet."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def is_there(self) -> bool:
        return self._users > 0 or self.path.exists()

    def acquire(self, size: int) -> int:
        """Its descriptor, until released as often as acquired. `FileNotFoundError`, too, when the size is another."""
        with self._lock:
            if self._users == 0:
                fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
                if os.fstat(fd).st_size != size:
                    os.close(fd)
                    raise FileNotFoundError(errno.ENOENT, "has another size", str(self.path))
                self._fd = fd
            self._users += 1
            return self._fd

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.close(self._fd)
                self._fd = -1

    def punch(self, offset: int, length: int) -> bool:
        """Give a part's room back; False where the file system cannot, or nobody has it open."""
        with self._lock:
            wanted = _PUNCH_HOLE | _KEEP_SIZE
            return self._users > 0 and int(_libc.fallocate(self._fd, wanted, offset, length)) == 0

    def move(self, target: Path) -> None:
        with self._lock:
            self.path.rename(target)
            self.path = target

    def remove(self) -> None:
        """From its directory: who has it open reads on."""
        with self._lock:
            self.path.unlink(missing_ok=True)


def write(fd: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def read(fd: int, length: int, offset: int) -> bytes:
    parts: list[bytes] = []
    while length > 0 and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def digests(fd: int, size: int, chunk_bytes: int, came_on: Callable[[], None]) -> list[bytes]:
    """`came_on` is told so again and again."""
    found = []
    for start in range(0, size, chunk_bytes):
        found.append(crc32(read(fd, min(chunk_bytes, size - start), start)).to_bytes(DIGEST_BYTES, "big"))
        came_on()
    return found


def check_against(checksum: str, fd: int, size: int, name: str, came_on: Callable[[], None]) -> None:
    """Whether the file is what its origin says it is; `checksum` is `algorithm:hexadecimal`."""
    algorithm, _, wanted = checksum.partition(":")
    try:
        total = new(algorithm, usedforsecurity=False)
    except ValueError as error:
        raise OriginError(f"{name}: its origin gives a checksum {algorithm!r} that is not known here") from error
    for start in range(0, size, READ_BYTES):
        total.update(read(fd, min(READ_BYTES, size - start), start))
        came_on()
    if total.hexdigest() != wanted.lower():
        raise OriginError(f"{name}: what arrived has not the checksum that its origin gives: {checksum}")
