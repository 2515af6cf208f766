"""A cached file on disk: its shared descriptor, and the writing, reading and checking of its chunks."""

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
from aliquot.storage.cache.transfers.entry import CacheEntry
from aliquot.storage.errors import OriginError

DIGEST_BYTES = 4
READ_BYTES = MIB
_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]


class CacheFile:
    """A file with one descriptor for all readers and writers, open as long as any of them uses it. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._fd = -1
        self._users = 0

    def create(self, size: int) -> None:
        """Create an empty file of this size, which takes no space yet."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def exists(self) -> bool:
        return self._users > 0 or self.path.exists()

    def acquire(self, size: int) -> int:
        """Return the descriptor, to be released as often as acquired.

        A file of another size than expected raises `FileNotFoundError`, too.
        """
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
        """Free the blocks of a part. Return False if the file is not open or the file system cannot do it."""
        with self._lock:
            flags = _PUNCH_HOLE | _KEEP_SIZE
            return self._users > 0 and int(_libc.fallocate(self._fd, flags, offset, length)) == 0

    def move(self, target: Path) -> None:
        with self._lock:
            self.path.rename(target)
            self.path = target

    def remove(self) -> None:
        """Remove the file from its directory. It stays readable where it is open."""
        with self._lock:
            self.path.unlink(missing_ok=True)


def file_of(entry: CacheEntry) -> CacheFile:
    """Return the file of an entry, which every entry gets from `CacheDirectory`."""
    file = entry.file
    if not isinstance(file, CacheFile):
        raise TypeError(f"{entry.key}: its entry has no file, but {file!r}")
    return file


class ChunkWriter:
    """Writes a chunk as it arrives. In a place never written before, zeros are left as a hole."""

    def __init__(self, fd: int, offset: int, *, is_fresh: bool) -> None:
        self.is_fresh = is_fresh
        self.length = 0
        self.is_hole = True
        self._fd = fd
        self._offset = offset
        self._crc = 0

    def add(self, piece: memoryview) -> None:
        self._crc = crc32(piece, self._crc)
        if not (self.is_fresh and _is_zeros(piece)):
            self.is_hole = False
            write_at(self._fd, piece, self._offset + self.length)
        self.length += len(piece)

    @property
    def digest(self) -> bytes:
        # CRC-32 detects accidents, at a quarter of the cost of a cryptographic digest.
        return self._crc.to_bytes(DIGEST_BYTES, "big")


def _is_zeros(piece: memoryview) -> bool:
    if piece[0] or piece[-1] or piece[len(piece) // 2]:
        return False
    return bytes(piece).count(0) == len(piece)


def write_at(fd: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Read this many bytes, fewer only at the end of the file."""
    parts: list[bytes] = []
    while length > 0 and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_entry(entry: CacheEntry, offset: int, length: int) -> bytes:
    """Read a part of an entry's file, fewer bytes only at its end."""
    file = file_of(entry)
    fd = file.acquire(entry.listed.size)
    try:
        return read_at(fd, min(length, max(entry.listed.size - offset, 0)), offset)
    finally:
        file.release()


@lru_cache(maxsize=64)
def digest_of_zeros(length: int) -> bytes:
    return crc32(bytes(length)).to_bytes(DIGEST_BYTES, "big")


def chunk_digests(fd: int, size: int, chunk_bytes: int, progress: Callable[[], None]) -> list[bytes]:
    """Read a file and return the digests of its chunks. Calls `progress` after each."""
    found = []
    for start in range(0, size, chunk_bytes):
        found.append(crc32(read_at(fd, min(chunk_bytes, size - start), start)).to_bytes(DIGEST_BYTES, "big"))
        progress()
    return found


def check_checksum(checksum: str, fd: int, size: int, name: str, progress: Callable[[], None]) -> None:
    """Compare a file with the checksum that its origin gives, `algorithm:hexadecimal`. Raise `OriginError`."""
    algorithm, _, wanted = checksum.partition(":")
    try:
        total = new(algorithm, usedforsecurity=False)
    except ValueError as error:
        raise OriginError(f"{name}: its origin gives a checksum of an unknown kind, {algorithm!r}") from error
    for start in range(0, size, READ_BYTES):
        total.update(read_at(fd, min(READ_BYTES, size - start), start))
        progress()
    if total.hexdigest() != wanted.lower():
        raise OriginError(f"{name}: the file that arrived does not match its origin's checksum {checksum}")
