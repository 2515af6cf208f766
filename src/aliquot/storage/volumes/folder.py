"""One volume on the disk: its files, and the count of its bytes against its size.

Nothing but this process writes to the folder, so the count is exact: each file counts with its size in blocks, and with
one block at least, and each directory with one block. Every change takes the volume's lock, and is refused before it is
made if it does not fit. A file that was removed while it is open counts until it is closed.
"""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.durable_files import remove_directory
from aliquot.storage.volumes.paths import Parts, check_bounds, open_beneath, path_bytes

FILES, UPLOADS = "files", "uploads"  # the first part of every path: a volume's files, and those that are uploaded
BLOCK_BYTES = 4096
_DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY
_OWNER, _EXECUTABLE = 0o600, 0o100
_OPENABLE = os.O_ACCMODE | os.O_APPEND  # flags of a caller that reach the disk


def charge(size: int) -> int:
    """Return the bytes that a file of this size counts for."""
    return max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES


def _check_file(fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is not a file")


class VolumeFile:
    """An open file of a volume."""

    __slots__ = ("appends", "fd", "number")

    def __init__(self, fd: int, *, appends: bool) -> None:
        self.fd = fd
        self.number = os.fstat(fd).st_ino
        self.appends = appends


class VolumeFolder:
    """The files of one volume. Every method may be called from any thread, and raises `OSError`."""

    def __init__(self, folder: Path, max_bytes: int, reserve_bytes: int = 0) -> None:
        """Open the folder, which is made if there is none. `reserve_bytes` of the disk are left free for others.

        Uploads that did not end are removed.
        """
        remove_directory(folder / UPLOADS)
        for name in (FILES, UPLOADS):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.max_bytes = max_bytes
        self._reserve_bytes = reserve_bytes
        self._root = os.open(folder, _DIRECTORY_FLAGS | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._used = self._count()
        self._opened: dict[int, int] = {}  # the number of handles of each open file, by inode
        self._unlinked: set[int] = set()  # open files that have no name any more
        self.removed = False

    @property
    def used_bytes(self) -> int:
        return self._used

    def remove(self) -> None:
        """Refuse every use from now on, because the volume was deleted."""
        with self._lock:
            self.removed = True

    # --- reading ------------------------------------------------------------------------------------------

    def stat(self, parts: Parts) -> os.stat_result:
        """Return the state of a file or a directory. Anything else is not there."""
        self._check()
        fd = open_beneath(self._root, parts, os.O_PATH)
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise FileNotFoundError(errno.ENOENT, "neither a file nor a directory")
        return found

    def names(self, parts: Parts) -> list[str]:
        """Return the sorted names of the files and directories in a directory."""
        self._check()
        fd = open_beneath(self._root, parts, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
                )
        finally:
            os.close(fd)

    def read(self, file: VolumeFile, size: int, offset: int) -> bytes:
        self._check()
        return os.pread(file.fd, size, offset)

    # --- files --------------------------------------------------------------------------------------------

    def open(self, parts: Parts, flags: int, mode: int = 0) -> VolumeFile:
        """Open a file with the flags of `open(2)`. The caller closes it with `close`."""
        self._check()
        with self._lock:
            made = self._make_file(parts, flags, mode) if flags & os.O_CREAT else None
            fd = made if made is not None else open_beneath(self._root, parts, flags & _OPENABLE | os.O_NONBLOCK)
            try:
                _check_file(fd)
                file = VolumeFile(fd, appends=bool(flags & os.O_APPEND))
                if flags & os.O_TRUNC and flags & os.O_ACCMODE != os.O_RDONLY:
                    self._resize(fd, 0)
            except OSError:
                os.close(fd)
                raise
            self._opened[file.number] = self._opened.get(file.number, 0) + 1
            return file

    def _make_file(self, parts: Parts, flags: int, mode: int) -> int | None:
        """Make a file and return its descriptor, or None if it is there and may be."""
        check_bounds(parts)
        try:
            fd = open_beneath(self._root, parts, os.O_PATH)
        except FileNotFoundError:
            self._grow(BLOCK_BYTES)
            how = flags & _OPENABLE | os.O_CREAT | os.O_EXCL | os.O_NONBLOCK
            try:
                return open_beneath(self._root, parts, how, _OWNER | mode & _EXECUTABLE)
            except OSError:
                self._used -= BLOCK_BYTES
                raise
        os.close(fd)
        if flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "the file exists")
        return None

    def write(self, file: VolumeFile, data: bytes | memoryview, offset: int) -> int:
        """Write all of the data, or nothing if it does not fit. Return its size."""
        with self._lock:
            self._check()
            size = os.fstat(file.fd).st_size
            if file.appends:
                offset = size
            growth = charge(max(size, offset + len(data))) - charge(size)
            self._grow(growth, len(data))
            written = 0
            try:
                while written < len(data):
                    written += os.pwrite(file.fd, memoryview(data)[written:], offset + written)
            finally:
                if written < len(data):  # count again what the disk has taken
                    self._used += charge(os.fstat(file.fd).st_size) - charge(size) - growth
            return written

    def resize(self, file: VolumeFile, size: int) -> None:
        with self._lock:
            self._check()
            self._resize(file.fd, size)

    def _resize(self, fd: int, size: int) -> None:
        growth = charge(size) - charge(os.fstat(fd).st_size)
        self._grow(growth)
        try:
            os.ftruncate(fd, size)
        except OSError:
            self._used -= growth
            raise

    def sync(self, file: VolumeFile) -> None:
        """Wait until the disk has the file."""
        os.fsync(file.fd)

    def close(self, file: VolumeFile) -> None:
        with self._lock:
            left = self._opened.pop(file.number, 1) - 1
            if left > 0:
                self._opened[file.number] = left
            elif file.number in self._unlinked:
                self._unlinked.discard(file.number)
                self._used -= charge(os.fstat(file.fd).st_size)
            os.close(file.fd)

    # --- names --------------------------------------------------------------------------------------------

    def make_directory(self, parts: Parts) -> None:
        check_bounds(parts)
        with self._lock, self._parent(parts) as parent:
            self._grow(BLOCK_BYTES)
            try:
                os.mkdir(parts[-1], 0o700, dir_fd=parent)
            except OSError:
                self._used -= BLOCK_BYTES
                raise

    def make_directories(self, parts: Parts) -> None:
        """Make a directory and those above it, if they are not there."""
        for depth in range(2, len(parts) + 1):
            try:
                self.make_directory(parts[:depth])
            except FileExistsError:
                if not stat.S_ISDIR(self.stat(parts[:depth]).st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, f"{parts[depth - 1]} is a file") from None

    def remove_file(self, parts: Parts) -> None:
        with self._lock, self._parent(parts) as parent:
            found = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            os.unlink(parts[-1], dir_fd=parent)
            self._uncount(found)

    def remove_directory(self, parts: Parts) -> None:
        with self._lock, self._parent(parts) as parent:
            os.rmdir(parts[-1], dir_fd=parent)
            self._used -= BLOCK_BYTES

    def rename(self, old: Parts, new: Parts, *, replace: bool = True) -> None:
        """Rename a file or a directory. A file, or an empty directory, that has the new name is replaced."""
        check_bounds(new)
        with self._lock, self._parent(old) as source, self._parent(new) as target:
            moved = os.stat(old[-1], dir_fd=source, follow_symlinks=False)
            if stat.S_ISDIR(moved.st_mode) and (len(new) > len(old) or path_bytes(new) > path_bytes(old)):
                check_bounds(new, *self._extent(old))
            try:
                replaced = os.stat(new[-1], dir_fd=target, follow_symlinks=False)
            except FileNotFoundError:
                replaced = None
            if replaced is not None and not replace:
                raise FileExistsError(errno.EEXIST, "the new name exists")
            os.rename(old[-1], new[-1], src_dir_fd=source, dst_dir_fd=target)
            if replaced is not None and replaced.st_ino != moved.st_ino:
                self._uncount(replaced)

    def set_executable(self, parts: Parts, mode: int) -> None:
        """Keep the owner's right to execute a file, and no other bit of a mode."""
        with self._reopened(parts) as fd:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.fchmod(fd, _OWNER | mode & _EXECUTABLE)

    def set_times(self, parts: Parts, times_ns: tuple[int, int]) -> None:
        with self._reopened(parts) as fd:
            os.utime(fd, ns=times_ns)

    # --- parts --------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.removed:
            raise OSError(errno.ESTALE, "the volume was deleted")

    @contextmanager
    def _parent(self, parts: Parts) -> Iterator[int]:
        """Open the directory of a path for as long as it is needed."""
        self._check()
        if len(parts) < 2:  # noqa: PLR2004 - below `FILES` or `UPLOADS`
            raise OSError(errno.EBUSY, "it is the volume itself")
        fd = open_beneath(self._root, parts[:-1], _DIRECTORY_FLAGS)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _reopened(self, parts: Parts) -> Iterator[int]:
        self._check()
        fd = open_beneath(self._root, parts, os.O_RDONLY | os.O_NONBLOCK)
        try:
            yield fd
        finally:
            os.close(fd)

    def _grow(self, growth: int, written: int = 0) -> None:
        """Count bytes, of which there are fewer if the number is negative. Raises `OSError` if they do not fit."""
        if growth > 0 and self._used + growth > self.max_bytes:
            raise OSError(errno.EDQUOT, f"the volume is full: {self._used} of {self.max_bytes} bytes are in use")
        needed = max(growth, written)  # a hole that is written takes space, too
        if needed > 0 and self._reserve_bytes:
            disk = os.statvfs(self.folder)
            if disk.f_bavail * disk.f_frsize - needed < self._reserve_bytes:
                raise OSError(errno.ENOSPC, "the platform's disk is almost full")
        self._used += growth

    def _uncount(self, removed: os.stat_result) -> None:
        """Give back the bytes of what has lost its name, now or when its last handle is closed."""
        if stat.S_ISDIR(removed.st_mode):
            self._used -= BLOCK_BYTES
        elif removed.st_ino in self._opened:
            self._unlinked.add(removed.st_ino)
        else:
            self._used -= charge(removed.st_size)

    def _extent(self, parts: Parts) -> tuple[int, int]:
        """Return the number of names and the bytes of the longest path below a directory."""
        root = open_beneath(self._root, parts, os.O_RDONLY | os.O_DIRECTORY)
        names = size = 0
        try:
            for place, folders, files, _ in os.fwalk(".", dir_fd=root):
                depth = tuple(part for part in place.split("/") if part != ".")
                for name in (*folders, *files):
                    names = max(names, len(depth) + 1)
                    size = max(size, path_bytes(depth) + path_bytes((name,)))
        finally:
            os.close(root)
        return names, size

    def _count(self) -> int:
        """Count the bytes of all files and directories, without the two folders in which they are."""
        used = -2 * BLOCK_BYTES
        for _, folders, files, fd in os.fwalk(".", dir_fd=self._root):
            used += BLOCK_BYTES * len(folders)
            for name in files:
                used += charge(os.stat(name, dir_fd=fd, follow_symlinks=False).st_size)
        return used
