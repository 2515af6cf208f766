"""The FUSE operations on files: an open waits for its file, a read of an incomplete file for its piece only."""

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import NamedTuple

from aliquot.budgets import Reservation
from aliquot.storage.cache import Cache, FileHandle, TransferFuture
from aliquot.storage.errors import AbsentError, PathError, StorageError
from aliquot.storage.records import FileKey
from aliquot.storage.view import wire
from aliquot.storage.view.contents import NodeContents
from aliquot.storage.view.directories import Directories
from aliquot.storage.view.files import OpenFile, OpenFiles
from aliquot.storage.view.handles import TenantHandles, TooManyFilesError
from aliquot.storage.view.inodes import Inode, InodeTable
from aliquot.storage.view.requests import ViewRequests

_REOPEN_TIMEOUT_S = 2.0  # how long a newer version stays open for the kernel's second open


class OpenCallbacks(NamedTuple):
    """Called with the results of opens and reads. Seconds are the time that the sandbox waited."""

    succeeded: Callable[[FileHandle], None]
    failed: Callable[[Inode, BaseException, float], None]
    waited: Callable[[FileKey, float], None]  # for a piece of a file


class FileOperations:
    """Answers the kernel's opens, reads and releases of one view."""

    def __init__(
        self, requests: ViewRequests, inodes: InodeTable, files: OpenFiles, directories: Directories, cache: Cache,
        names: NodeContents, handles: TenantHandles, callbacks: OpenCallbacks,
    ) -> None:  # fmt: skip
        self._requests = requests
        self._inodes = inodes
        self._files = files
        self._directories = directories
        self._cache = cache
        self._names = names
        self._handles = handles
        self._callbacks = callbacks
        self._reserved: dict[int, Reservation] = {}  # by request, for files that are on their way
        # Files whose version turned out to be newer than the inode, kept open until a deadline.
        self._newer: dict[FileKey, tuple[FileHandle, float]] = {}

    def open(self, unique: int, inode: int, _body: bytes) -> None:
        node = self._inodes.get(inode)
        if node is None or node.listed is None:
            self._requests.refuse(unique, errno.ESTALE if node is None else errno.EISDIR)
            return
        if not self._directories.shows(node.dataset):
            self._requests.refuse(unique, errno.ENOENT)
            return
        try:
            reserved = self._handles.reserve(node, len(self._files))
        except TooManyFilesError as error:
            self._callbacks.failed(node, error, 0.0)
            self._requests.refuse(unique, error.errno)
            return
        here = self._take_newer(node.key) or self._cache.try_open(node.key)
        if here is not None:
            self._opened(unique, inode, node, here, reserved)
        else:
            self._fetch(unique, inode, node, reserved)

    def _fetch(self, unique: int, inode: int, node: Inode, reserved: Reservation) -> None:
        begun_s = time.monotonic()
        try:
            future = self._cache.open(node.key)
        except (StorageError, PathError) as refused:
            self._callbacks.failed(node, refused, 0.0)
            self._requests.refuse(unique, refused.errno)
            return
        self._reserved[unique] = reserved  # not in the callbacks, which form a cycle with the future
        self._requests.wait(
            unique,
            future,
            lambda: self._arrived(unique, inode, node, future, begun_s),
            lambda: self._drop(unique, future),
        )

    def _drop(self, unique: int, future: TransferFuture[FileHandle]) -> None:
        """Close a file whose reader no longer waits for it."""
        del self._reserved[unique]
        if not future.cancelled() and future.exception() is None:
            future.result().close()

    def _arrived(
        self, unique: int, inode: int, node: Inode, future: TransferFuture[FileHandle], begun_s: float
    ) -> None:
        reserved = self._reserved.pop(unique)
        try:
            opened = future.result()
        except CancelledError as error:
            self._callbacks.failed(node, error, time.monotonic() - begun_s)
            self._requests.refuse(unique, errno.EIO)
        except (StorageError, PathError) as error:
            if isinstance(error, AbsentError):
                self._names.correct(node.key, None)
            self._callbacks.failed(node, error, time.monotonic() - begun_s)
            self._requests.refuse(unique, error.errno)
        else:
            self._opened(unique, inode, node, opened, reserved)

    def _opened(self, unique: int, inode: int, node: Inode, opened: FileHandle, reserved: Reservation) -> None:
        if not self._directories.shows(node.dataset):  # hidden from the sandbox meanwhile
            opened.close()
            self._requests.refuse(unique, errno.ENOENT)
            return
        if not node.matches(opened.listed):
            # The file has changed at its origin: with ESTALE the kernel looks its name up again and opens that.
            self._names.correct(node.key, opened.listed)
            self._keep_newer(node.key, opened)
            self._requests.refuse(unique, errno.ESTALE)
            return
        self._callbacks.succeeded(opened)
        handle, answer = self._files.add(inode, opened, reserved)
        if not self._requests.answer(unique, answer):
            self._files.release(handle)

    def _keep_newer(self, key: FileKey, opened: FileHandle) -> None:
        before = self._newer.pop(key, None)
        if before is not None:
            before[0].close()
        self._newer[key] = opened, time.monotonic() + _REOPEN_TIMEOUT_S

    def _take_newer(self, key: FileKey) -> FileHandle | None:
        """Return the newer version that an earlier open found, for the kernel's second open."""
        now = time.monotonic()
        for old in [other for other, (_, until) in self._newer.items() if now > until]:
            self._newer.pop(old)[0].close()
        return self._newer.pop(key, (None, 0))[0]

    def read(self, unique: int, inode: int, body: bytes) -> None:
        handle, place, size = wire.READ_IN.unpack_from(body)
        file = self._files.get(handle)
        if file is None or file.inode != inode:
            self._requests.refuse(unique, errno.EIO)  # opened by an earlier agent, in a version that is not known here
            return
        fd = file.opened.fd
        if fd is not None:
            # Read on this thread: handing it to another takes longer than the read.
            self._requests.answer(unique, os.pread(fd, size, place))
            return
        begun_s = time.monotonic()
        future = file.opened.read(place, size)
        is_here = future.done()
        self._requests.wait(unique, future, lambda: self._read(unique, file, future, None if is_here else begun_s))

    def _read(self, unique: int, file: OpenFile, future: TransferFuture[bytes], waits_since_s: float | None) -> None:
        waited_s = 0.0 if waits_since_s is None else time.monotonic() - waits_since_s
        try:
            piece = future.result()
        except (StorageError, CancelledError) as error:
            node = self._inodes.get(file.inode)
            if node is not None:
                self._callbacks.failed(node, error, waited_s)
            self._requests.refuse(unique, error.errno if isinstance(error, StorageError) else errno.EIO)
        else:
            if waits_since_s is not None:
                self._callbacks.waited(file.opened.key, waited_s)
            self._requests.answer(unique, piece)

    def release(self, unique: int, _inode: int, body: bytes) -> None:
        self._files.release(*wire.HANDLE.unpack_from(body))
        self._requests.answer(unique)

    def close(self) -> None:
        for opened, _ in self._newer.values():
            opened.close()
        self._newer.clear()
        self._files.close()
