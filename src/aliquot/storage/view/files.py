"""The files that a sandbox has open through its view, and how the kernel reads each of them.

A complete file is *passed through*: the kernel reads the cached file directly, at full speed. An incomplete file, or
any file where passthrough is not permitted, is read in pieces by requests. All opens of an inode are read in the same
way, because the kernel refuses a mixture.
"""

import errno
import fcntl
import sys
from collections import Counter

from msgspec import Struct

from aliquot.budgets import Reservation
from aliquot.storage.cache import FileHandle
from aliquot.storage.view import wire
from aliquot.storage.view.inodes import unique_numbers

_NEVER = frozenset({errno.EPERM, errno.ENOTTY, errno.EINVAL})  # permanent: passthrough fails for every file


class OpenFile(Struct, eq=False):
    """One open of a file through the view."""

    inode: int
    opened: FileHandle
    reserved: Reservation | None = None  # its part of the tenant's open files


class OpenFiles:
    """The open files of one view, by handle."""

    def __init__(self, device: int, *, passthrough: bool = True) -> None:
        self._device = device
        self._passthrough = passthrough
        self._direct = False  # reads in pieces bypass the page cache, because the cached file is already in it
        self._handles = unique_numbers()
        self._open: dict[int, OpenFile] = {}
        self._backings: dict[int, int] = {}  # by inode: the kernel's number for the cached file
        self._users: Counter[int] = Counter()  # by inode: number of opens

    def negotiated(self, *, passthrough: bool, direct: bool) -> None:
        """Apply what the kernel supports. `direct` concerns reads in pieces."""
        self._passthrough = passthrough
        self._direct = direct and not passthrough

    def __len__(self) -> int:
        return len(self._open)

    def get(self, handle: int) -> OpenFile | None:
        return self._open.get(handle)

    def add(self, inode: int, opened: FileHandle, reserved: Reservation | None = None) -> tuple[int, bytes]:
        """Add an open file and return its handle and the answer to the kernel."""
        handle = next(self._handles)
        backing = self._backing(inode, opened.fd)
        flags = wire.OPEN_DIRECT if self._direct else wire.OPEN_KEEP
        if backing is not None:
            flags = wire.OPEN_PASSTHROUGH
        self._users[inode] += 1
        self._open[handle] = OpenFile(inode, opened, reserved)
        return handle, wire.OPEN_OUT.pack(handle, flags, backing or 0)

    def _backing(self, inode: int, fd: int | None) -> int | None:
        if self._users[inode]:
            return self._backings.get(inode)  # the same way as the earlier opens
        if fd is None or not self._passthrough:
            return None
        try:
            # With a bytearray, ioctl returns the call's result.
            backing: int = fcntl.ioctl(self._device, wire.BACKING_OPEN, bytearray(wire.BACKING_MAP.pack(fd, 0, 0)))
        except OSError as error:
            self._passthrough = error.errno not in _NEVER
            return None
        self._backings[inode] = backing
        return backing

    def release(self, handle: int) -> None:
        file = self._open.pop(handle, None)
        if file is None:
            return
        self._users[file.inode] -= 1
        try:
            if not self._users[file.inode]:
                del self._users[file.inode]
                backing = self._backings.pop(file.inode, None)
                if backing is not None:
                    fcntl.ioctl(self._device, wire.BACKING_CLOSE, backing.to_bytes(4, sys.byteorder))
        finally:
            file.opened.close()

    def close(self) -> None:
        """Close all files after the sandbox has ended, when the kernel has released its backing files."""
        for file in self._open.values():
            file.opened.close()
        self._open.clear()
        self._backings.clear()
        self._users.clear()
