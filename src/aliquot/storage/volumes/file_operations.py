"""The FUSE operations on files of volumes: every read and write of a sandbox passes here.

Writes go past the kernel's cache, so that another sandbox that opens the file afterwards reads what was written, and so
that a write that does not fit fails itself and not a later one. Reads are cached by the kernel.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from aliquot.budgets import Reservation
from aliquot.storage.view import wire as view_wire
from aliquot.storage.view.inodes import unique_numbers
from aliquot.storage.volumes import wire
from aliquot.storage.volumes.folder import VolumeFile, VolumeFolder
from aliquot.storage.volumes.inodes import VolumeInode
from aliquot.storage.volumes.paths import Parts

# Within the clock's grain a file may change and keep its time, so younger files are read again when they are opened.
_SETTLED_NS = 2_000_000_000


class _Handle(NamedTuple):
    node: VolumeInode
    folder: VolumeFolder
    file: VolumeFile
    reserved: Reservation


class VolumeFiles:
    """The open files of one sandbox."""

    def __init__(self, reserve: Callable[[], Reservation]) -> None:
        self._reserve = reserve  # counts an open file of the tenant, or raises `OSError`
        self._numbers = unique_numbers()
        self._open: dict[int, _Handle] = {}
        self.maps_direct = False  # the kernel can map files whose reads are not cached

    @contextmanager
    def opening(
        self, folder: VolumeFolder, parts: Parts, flags: int, mode: int = 0
    ) -> Iterator[Callable[[VolumeInode], bytes]]:
        """Open a file. The yielded function makes the answer to the kernel, with the node of the file.

        If it is not called, the file is closed again.
        """
        reserved = self._reserve()
        file = folder.open(parts, flags, mode)
        kept = False

        def keep(node: VolumeInode) -> bytes:
            nonlocal kept
            kept = True
            handle = next(self._numbers)
            self._open[handle] = _Handle(node, folder, file, reserved)
            node.files.append(file)
            return view_wire.OPEN_OUT.pack(handle, self._open_flags(node, file, flags), 0)

        try:
            yield keep
        finally:
            if not kept:
                folder.close(file)

    def open(self, node: VolumeInode, body: memoryview) -> bytes:
        flags, _ = wire.OPEN_IN.unpack_from(body)
        if node.folder is None:
            raise OSError(errno.EISDIR, "it is a directory")
        with self.opening(node.folder, node.parts, flags & ~os.O_CREAT) as opened:
            return opened(node)

    def _open_flags(self, node: VolumeInode, file: VolumeFile, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            node.kept = None
            return view_wire.OPEN_DIRECT if self.maps_direct else 0
        found = os.fstat(file.fd)
        version = found.st_mtime_ns, found.st_size
        unchanged = node.kept == version
        node.kept = version if time.time_ns() - found.st_mtime_ns > _SETTLED_NS else None
        return view_wire.OPEN_KEEP if unchanged else 0

    def read(self, body: memoryview) -> bytes:
        number, offset, size = view_wire.READ_IN.unpack_from(body)
        handle = self._handle(number)
        return handle.folder.read(handle.file, size, offset)

    def write(self, body: memoryview) -> bytes:
        number, offset, size, *_ = wire.WRITE_IN.unpack_from(body)
        handle = self._handle(number)
        data = body[wire.WRITE_IN.size : wire.WRITE_IN.size + size]
        return wire.WRITE_OUT.pack(handle.folder.write(handle.file, data, offset), 0)

    def sync(self, body: memoryview) -> bytes:
        handle = self._handle(*view_wire.HANDLE.unpack_from(body))
        handle.folder.sync(handle.file)
        return b""

    def release(self, body: memoryview) -> bytes:
        handle = self._open.pop(view_wire.HANDLE.unpack_from(body)[0], None)
        if handle is not None:
            self._close(handle)
        return b""

    def set_attributes(self, node: VolumeInode, folder: VolumeFolder, body: memoryview) -> None:
        """Set the size, the times or the right to execute."""
        valid, _, number, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, *_ = wire.SETATTR_IN.unpack_from(body)
        if valid & wire.ATTR_SIZE:
            self._resize(node, folder, number if valid & wire.ATTR_HANDLE else None, size)
        if valid & wire.ATTR_MODE:
            folder.set_executable(node.parts, mode)
        if valid & (wire.ATTR_ATIME | wire.ATTR_MTIME):
            found, now_ns = node.stat(), time.time_ns()
            times = [found.st_atime_ns, found.st_mtime_ns]
            given = (
                (wire.ATTR_ATIME, wire.ATTR_ATIME_NOW, atime * 1_000_000_000 + atime_ns),
                (wire.ATTR_MTIME, wire.ATTR_MTIME_NOW, mtime * 1_000_000_000 + mtime_ns),
            )
            for index, (flag, now_flag, time_ns) in enumerate(given):
                if valid & flag:
                    times[index] = now_ns if valid & now_flag else time_ns
            folder.set_times(node.parts, (times[0], times[1]))

    def _resize(self, node: VolumeInode, folder: VolumeFolder, number: int | None, size: int) -> None:
        node.kept = None
        if number is not None:
            folder.resize(self._handle(number).file, size)
            return
        file = folder.open(node.parts, os.O_WRONLY)
        try:
            folder.resize(file, size)
        finally:
            folder.close(file)

    def close(self) -> None:
        """Close all files, because the sandbox has ended."""
        while self._open:
            self._close(self._open.popitem()[1])

    def _handle(self, number: int) -> _Handle:
        handle = self._open.get(number)
        if handle is None:
            raise OSError(errno.EIO, "another agent opened it")
        return handle

    def _close(self, handle: _Handle) -> None:
        handle.node.files.remove(handle.file)
        handle.folder.close(handle.file)
