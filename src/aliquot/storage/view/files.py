"""The files that a sandbox has open through its view, and how the kernel reads each of them.

A file that is whole is *passed through*: the kernel reads the cached file by itself, as fast as any other. One that is
not whole, or any where the kernel or the agent's privileges do not allow that, is asked for piece by piece. An inode is
read in one way at a time: the kernel refuses both at once.
"""

import errno
import fcntl
import sys
from collections import Counter

from msgspec import Struct

from aliquot.storage.cache import FileHandle
from aliquot.storage.view import wire
from aliquot.storage.view.numbers import numbers

_NEVER = frozenset({errno.EPERM, errno.ENOTTY, errno.EINVAL})  # nor will it be allowed for another file


class OpenFile(Struct, eq=False):
    inode: int
    opened: FileHandle


class OpenFiles:
    def __init__(self, device: int) -> None:
        self._device = device
        self.passes = True  # until the kernel says otherwise
        self.direct = False  # pieces go past the page cache: what is copied once need not be kept twice
        self._handles = numbers()
        self._open: dict[int, OpenFile] = {}
        self._backings: dict[int, int] = {}  # by inode: the kernel's number for the file below
        self._users: Counter[int] = Counter()  # by inode, of either way: how many have it open

    def __len__(self) -> int:
        return len(self._open)

    def get(self, handle: int) -> OpenFile | None:
        return self._open.get(handle)

    def add(self, inode: int, opened: FileHandle) -> tuple[int, bytes]:
        """The handle, and the answer to the kernel's open."""
        handle = next(self._handles)
        backing = self._backing(inode, opened.fd)
        flags = wire.OPEN_DIRECT if self.direct else wire.OPEN_KEEP
        if backing is not None:
            flags = wire.OPEN_PASSTHROUGH
        self._users[inode] += 1
        self._open[handle] = OpenFile(inode, opened)
        return handle, wire.OPEN_OUT.pack(handle, flags, backing or 0)

    def _backing(self, inode: int, fd: int | None) -> int | None:
        if self._users[inode]:
            return self._backings.get(inode)  # as it is read already
        if fd is None or not self.passes:
            return None
        try:
            # A bytearray, for the call's result to be its answer.
            backing: int = fcntl.ioctl(self._device, wire.BACKING_OPEN, bytearray(wire.BACKING_MAP.pack(fd, 0, 0)))
        except OSError as error:
            self.passes = error.errno not in _NEVER
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
        """The sandbox has gone, and the kernel has let go of what it read by itself."""
        for file in self._open.values():
            file.opened.close()
        self._open.clear()
        self._backings.clear()
        self._users.clear()
