"""The FUSE operations on names: lookups, attributes, and reading directories."""

import errno
import time
from collections.abc import Callable

from aliquot.storage.errors import StorageError
from aliquot.storage.view import wire
from aliquot.storage.view.contents import NodeContents
from aliquot.storage.view.directories import VALID_S, Directories
from aliquot.storage.view.handles import TooManyFilesError
from aliquot.storage.view.inodes import Inode, InodeTable
from aliquot.storage.view.requests import ViewRequests

Failed = Callable[[Inode, BaseException], None]


class NameOperations:
    """Answers the kernel's requests about names, and waits for listings that are not known yet."""

    def __init__(
        self,
        requests: ViewRequests,
        inodes: InodeTable,
        directories: Directories,
        names: NodeContents,
        failed: Failed,
    ) -> None:
        self._requests = requests
        self._inodes = inodes
        self._directories = directories
        self._names = names
        self._failed = failed
        self._waited_s = 0.0

    def look_up(self, unique: int, inode: int, body: bytes) -> None:
        name = body.rstrip(b"\0").decode(errors="surrogateescape")  # a name that is not UTF-8 matches no file
        self._in_directory(unique, inode, lambda node: self._look_up(unique, node, name))

    def _look_up(self, unique: int, node: Inode, name: str) -> None:
        child = self._directories.child(node, name)
        if child is None:
            self._requests.refuse(unique, errno.ENOENT)
            return
        number = self._inodes.look_up(child)
        if not self._requests.answer(unique, self._directories.entry(child, number)):
            self._inodes.forget(number, 1)

    def forget(self, _unique: int, inode: int, body: bytes) -> None:
        (times,) = wire.HANDLE.unpack_from(body)
        self._inodes.forget(inode, times)

    def forget_many(self, _unique: int, _inode: int, body: bytes) -> None:
        count, _ = wire.BATCH_HEAD.unpack_from(body)
        forgotten = body[wire.BATCH_HEAD.size :][: count * wire.FORGET_ONE.size]
        for inode, times in wire.FORGET_ONE.iter_unpack(forgotten):
            self._inodes.forget(inode, times)

    def get_attributes(self, unique: int, inode: int, _body: bytes) -> None:
        node = self._inodes.get(inode)
        if node is None:
            self._requests.refuse(unique, errno.ESTALE)
            return
        answer = wire.ATTR_OUT.pack(VALID_S, 0, 0, *self._directories.attributes(node, inode))
        self._requests.answer(unique, answer)

    def open_directory(self, unique: int, inode: int, _body: bytes) -> None:
        self._in_directory(unique, inode, lambda node: self._open_directory(unique, node))

    def _open_directory(self, unique: int, node: Inode) -> None:
        try:
            handle = self._directories.open(node)
        except KeyError:
            self._requests.refuse(unique, errno.ESTALE)
            return
        except TooManyFilesError as error:
            self._failed(node, error)
            self._requests.refuse(unique, error.errno)
            return
        if not self._requests.answer(unique, wire.OPEN_OUT.pack(handle, 0, 0)):
            self._directories.release(handle)

    def read_directory(self, unique: int, _inode: int, body: bytes, *, plus: bool) -> None:
        handle, place, size = wire.READ_IN.unpack_from(body)
        try:
            entries = self._directories.read(handle, place, size, plus=plus)
        except KeyError:
            self._requests.refuse(unique, errno.ESTALE)
            return
        self._requests.answer(unique, entries)

    def release_directory(self, unique: int, _inode: int, body: bytes) -> None:
        self._directories.release(*wire.HANDLE.unpack_from(body))
        self._requests.answer(unique)

    def describe(self, unique: int, _inode: int, _body: bytes) -> None:
        self._requests.answer(unique, wire.STATFS_OUT.pack(0, 0, 0, 0, 0, 4096, 255, 4096, 0))

    def waited_s(self) -> float:
        """Return the seconds waited for listings since the last call."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    # --- listings -----------------------------------------------------------------------------------------

    def _in_directory(self, unique: int, inode: int, then: Callable[[Inode], None]) -> None:
        """Call `then` when the directory's contents are known, at once or later."""
        node = self._inodes.get(inode)
        if node is None:
            # The number is from an earlier agent: with ESTALE the kernel looks the path up again from the root.
            self._requests.refuse(unique, errno.ESTALE)
        elif not self._directories.shows(node.dataset):
            self._requests.refuse(unique, errno.ENOENT)
        elif not node.dataset or self._names.is_known(node.dataset):
            then(node)
        else:
            begun_s, future = time.monotonic(), self._names.learn(node.dataset)

            def learned() -> None:
                self._waited_s += time.monotonic() - begun_s
                self._learned(unique, node, future.exception(), then)

            self._requests.wait(unique, future, learned)

    def _learned(self, unique: int, node: Inode, error: BaseException | None, then: Callable[[Inode], None]) -> None:
        if error is None and self._directories.shows(node.dataset):
            then(node)
        elif error is None:  # hidden from the sandbox meanwhile
            self._requests.refuse(unique, errno.ENOENT)
        else:
            self._failed(node, error)
            self._requests.refuse(unique, error.errno if isinstance(error, StorageError) else errno.EIO)
