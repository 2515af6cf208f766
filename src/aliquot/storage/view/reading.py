"""Answers opens and reads: an open waits for its file, a read of one that is not whole for its piece alone."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor

from aliquot.storage.cache.base import Cache, Opened, Ticket
from aliquot.storage.errors import AbsentError, PathError, StorageError
from aliquot.storage.records import FileKey
from aliquot.storage.view import wire
from aliquot.storage.view.files import OpenFiles
from aliquot.storage.view.inodes import Inodes, Node
from aliquot.storage.view.names import Names
from aliquot.storage.view.requests import Requests

Failed = Callable[[Node, BaseException], None]
Succeeded = Callable[[Opened], None]


class Reading:
    def __init__(
        self, requests: Requests, inodes: Inodes, files: OpenFiles, cache: Cache, names: Names, aside: Executor,
        succeeded: Succeeded, failed: Failed,
    ) -> None:  # fmt: skip
        self._requests = requests
        self._inodes = inodes
        self._files = files
        self._cache = cache
        self._names = names
        self._aside = aside
        self._succeeded = succeeded
        self._failed = failed
        self._newer: dict[FileKey, Opened] = {}  # opened, and found to be another version than was asked for

    def open(self, unique: int, inode: int, _body: bytes) -> None:
        node = self._inodes.get(inode)
        if node is None or node.listed is None:
            self._requests.refuse(unique, errno.ESTALE if node is None else errno.EISDIR)
            return
        newer = self._newer.pop(node.key, None)
        if newer is not None:
            self._have(unique, inode, node, newer)
            return
        try:
            ticket = self._cache.open(node.key)
        except (StorageError, PathError) as error:
            self._failed(node, error)
            self._requests.refuse(unique, error.errno)
            return
        self._requests.wait(
            unique, ticket, lambda: self._arrived(unique, inode, node, ticket), lambda: _close_unwanted(ticket)
        )

    def _arrived(self, unique: int, inode: int, node: Node, ticket: Ticket[Opened]) -> None:
        try:
            opened = ticket.result()
        except CancelledError as error:
            self._failed(node, error)
            self._requests.refuse(unique, errno.EIO)
        except (StorageError, PathError) as error:
            if isinstance(error, AbsentError):
                self._names.correct(node.key, None)
            self._failed(node, error)
            self._requests.refuse(unique, error.errno)
        else:
            self._have(unique, inode, node, opened)

    def _have(self, unique: int, inode: int, node: Node, opened: Opened) -> None:
        if node.listed is None or (opened.listed.version, opened.listed.size) != (
            node.listed.version,
            node.listed.size,
        ):
            # It has changed at its origin. The kernel looks its name up again, finds another inode, and opens that.
            self._names.correct(node.key, opened.listed)
            self._newer[node.key] = opened
            self._requests.refuse(unique, errno.ESTALE)
            return
        self._succeeded(opened)
        handle, said = self._files.add(inode, opened)
        if not self._requests.answer(unique, said):
            self._files.release(handle)

    def read(self, unique: int, _inode: int, body: bytes) -> None:
        handle, place, size = wire.READ_IN.unpack_from(body)
        file = self._files.get(handle)
        if file is None:
            self._requests.refuse(unique, errno.EIO)  # of an agent that has died; what it had open is not ours to guess
            return
        if file.fd is not None:
            self._requests.channel.hold()
            self._aside.submit(self._send_piece, unique, file.fd, place, size)
            return
        ticket = file.opened.read(place, size)
        self._requests.wait(unique, ticket, lambda: self._read(unique, file.inode, ticket))

    def _read(self, unique: int, inode: int, ticket: Ticket[bytes]) -> None:
        try:
            piece = ticket.result()
        except (StorageError, CancelledError) as error:
            node = self._inodes.get(inode)
            if node is not None:
                self._failed(node, error)
            self._requests.refuse(unique, errno.EIO)
        else:
            self._requests.answer(unique, piece)

    def _send_piece(self, unique: int, fd: int, place: int, size: int) -> None:
        """On another thread."""
        channel = self._requests.channel
        try:
            piece = os.pread(fd, size, place)
            channel.send(wire.ANSWER.pack(wire.ANSWER.size + len(piece), 0, unique), piece)
        except OSError as error:
            channel.send(wire.refusal(unique, error.errno or errno.EIO))
        finally:
            channel.let_go()

    def release(self, unique: int, _inode: int, body: bytes) -> None:
        self._files.release(*wire.HANDLE.unpack_from(body))
        self._requests.answer(unique)

    def close(self) -> None:
        for opened in self._newer.values():
            opened.close()
        self._newer.clear()
        self._files.close()


def _close_unwanted(ticket: Ticket[Opened]) -> None:
    if not ticket.cancelled() and ticket.exception() is None:
        ticket.result().close()
