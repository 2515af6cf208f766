"""The volumes of one sandbox: a thread answers the kernel's requests on one descriptor of `/dev/fuse`.

Each sandbox has a thread of its own, so that a slow disk under one tenant's writes does not delay another tenant's.
Links, devices and pipes cannot be made, and no bit of a mode counts but the right to execute.
"""

import errno
import os
import select
from collections.abc import Callable, Mapping

import structlog

from aliquot.budgets import Budget, BudgetError, Reservation
from aliquot.storage.view import wire as view_wire
from aliquot.storage.view.inodes import ROOT, unique_numbers
from aliquot.storage.volumes import wire
from aliquot.storage.volumes.file_operations import VolumeFiles
from aliquot.storage.volumes.folder import VolumeFolder
from aliquot.storage.volumes.inodes import VolumeInode, VolumeInodes
from aliquot.storage.volumes.wire import VolumeOperation

log = structlog.get_logger("aliquot.volumes")

_NO_REQUEST = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOENT})
_NO_ANSWER = frozenset(
    {VolumeOperation.FORGET, VolumeOperation.BATCH_FORGET, VolumeOperation.INTERRUPT, VolumeOperation.DESTROY}
)
_FOUND_LATER = 0xFFFFFFFF  # inode number of a directory's entry that was not looked up
_DOTS = (".", "..")


class VolumeConnection:
    """Answers the requests of one sandbox about its volumes."""

    def __init__(
        self, device: int, volumes: Mapping[str, VolumeFolder], tenant: str, handles: Budget, stop: int
    ) -> None:
        """`stop` is an event descriptor that ends `serve`. The device is closed at the end of `serve`."""
        self._device = device
        self._stop = stop
        self._tenant = tenant
        self._handles = handles
        self._inodes = VolumeInodes(volumes)
        self._files = VolumeFiles(self._reserve)
        self._owner = (0, 0)
        self._numbers = unique_numbers()
        self._directories: dict[int, tuple[list[str], Reservation]] = {}
        self._buffer = memoryview(bytearray(wire.BUFFER_BYTES))
        self._operations = self._make_operations()

    def _make_operations(self) -> dict[int, Callable[[int, memoryview], bytes]]:
        """Return the table of operations and the methods that perform them, with an inode and a body."""
        return {
            VolumeOperation.LOOKUP: lambda inode, body: self._entry(self._inodes[inode], _name(body)),
            VolumeOperation.FORGET: self._forget,
            VolumeOperation.BATCH_FORGET: self._forget_many,
            VolumeOperation.GETATTR: lambda inode, _: self._attributes(self._inodes[inode]),
            VolumeOperation.SETATTR: self._set_attributes,
            VolumeOperation.SYMLINK: _forbidden,
            VolumeOperation.LINK: _forbidden,
            VolumeOperation.MKNOD: _forbidden,
            VolumeOperation.MKDIR: self._make_directory,
            VolumeOperation.UNLINK: self._remove_file,
            VolumeOperation.RMDIR: self._remove_directory,
            VolumeOperation.RENAME: lambda inode, body: self._rename(inode, body, view_wire.HANDLE.size),
            VolumeOperation.RENAME2: lambda inode, body: self._rename(inode, body, wire.RENAME2_IN.size),
            VolumeOperation.OPEN: lambda inode, body: self._files.open(self._inodes[inode], body),
            VolumeOperation.CREATE: self._create,
            VolumeOperation.READ: lambda _, body: self._files.read(body),
            VolumeOperation.WRITE: lambda _, body: self._files.write(body),
            VolumeOperation.FSYNC: lambda _, body: self._files.sync(body),
            VolumeOperation.RELEASE: lambda _, body: self._files.release(body),
            VolumeOperation.OPENDIR: self._open_directory,
            VolumeOperation.READDIR: self._read_directory,
            VolumeOperation.RELEASEDIR: self._release_directory,
            VolumeOperation.STATFS: self._describe,
            VolumeOperation.INIT: self._init,
            VolumeOperation.INTERRUPT: lambda _inode, _body: b"",  # no request takes long
            VolumeOperation.DESTROY: lambda _inode, _body: b"",
        }

    def serve(self) -> None:
        """Answer requests until the volumes are unmounted or the connection is stopped."""
        os.set_blocking(self._device, False)
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        try:
            # An earlier agent may have left requests unanswered: the kernel sends them again.
            self._send(view_wire.resend())
            while self._stop not in dict(poll.poll()):
                if not self._serve_one():
                    return
        finally:
            self._files.close()
            self._directories.clear()
            os.close(self._device)

    def _serve_one(self) -> bool:
        """Answer one request. Return False if the volumes are no longer mounted."""
        try:
            size = os.readv(self._device, [self._buffer])
        except OSError as error:
            return error.errno in _NO_REQUEST
        _, operation, unique, inode, *owner, _pid, _ = view_wire.REQUEST.unpack_from(self._buffer)
        self._owner = (owner[0], owner[1])
        perform = self._operations.get(operation)
        if perform is None:
            self._send(view_wire.refusal(unique, errno.ENOSYS))
            return True
        try:
            answer = perform(inode, self._buffer[view_wire.REQUEST.size : size])
        except OSError as error:
            self._send(view_wire.refusal(unique, error.errno or errno.EIO))
            return True
        except Exception:  # the program must get an answer in any case
            log.exception("a request about a volume failed", operation=operation, tenant=self._tenant)
            self._send(view_wire.refusal(unique, errno.EIO))
            return True
        if operation not in _NO_ANSWER:
            self._send(*view_wire.answer(unique, answer))
        return True

    def _send(self, *answer: bytes) -> None:
        try:
            os.writev(self._device, answer)
        except OSError as error:  # the program no longer waits, or the kernel does not resend
            log.debug("an answer was not taken", error=error.strerror)

    def _reserve(self) -> Reservation:
        try:
            return self._handles.reserve(self._tenant, 1)
        except BudgetError as error:
            raise OSError(errno.ENFILE, str(error)) from error

    def _init(self, _inode: int, body: memoryview) -> bytes:
        self._files.maps_direct, answer = wire.init(body)
        return answer

    # --- names --------------------------------------------------------------------------------------------

    def _entry(self, parent: VolumeInode, name: str) -> bytes:
        return self._pack_entry(*self._inodes.look_up(parent, name))

    def _pack_entry(self, node: VolumeInode, found: os.stat_result) -> bytes:
        attributes = wire.attributes(node.number, found, self._owner)
        return view_wire.ENTRY_OUT.pack(node.number, 0, 0, 0, 0, 0, *attributes)

    def _attributes(self, node: VolumeInode) -> bytes:
        if node.folder is None:  # the directory of all volumes, which nobody can change
            values = view_wire.attributes(ROOT, 4096, 0, directory=True, block=4096)
        else:
            values = wire.attributes(node.number, node.stat(), self._owner)
        return view_wire.ATTR_OUT.pack(0, 0, 0, *values)

    def _set_attributes(self, inode: int, body: memoryview) -> bytes:
        node = self._inodes[inode]
        self._files.set_attributes(node, _folder(node), body)
        return self._attributes(node)

    def _forget(self, inode: int, body: memoryview) -> bytes:
        self._inodes.forget(inode, *view_wire.HANDLE.unpack_from(body))
        return b""

    def _forget_many(self, _inode: int, body: memoryview) -> bytes:
        count, _ = view_wire.BATCH_HEAD.unpack_from(body)
        forgotten = body[view_wire.BATCH_HEAD.size :][: count * view_wire.FORGET_ONE.size]
        for number, times in view_wire.FORGET_ONE.iter_unpack(forgotten):
            self._inodes.forget(number, times)
        return b""

    def _make_directory(self, inode: int, body: memoryview) -> bytes:
        parent, name = self._inodes[inode], _name(body[wire.MAKE_IN.size :])
        _folder(parent).make_directory((*parent.parts, name))
        return self._entry(parent, name)

    def _remove_file(self, inode: int, body: memoryview) -> bytes:
        parent, name = self._inodes[inode], _name(body)
        _folder(parent).remove_file((*parent.parts, name))
        self._inodes.removed(parent, name)
        return b""

    def _remove_directory(self, inode: int, body: memoryview) -> bytes:
        parent, name = self._inodes[inode], _name(body)
        _folder(parent).remove_directory((*parent.parts, name))
        self._inodes.removed(parent, name)
        return b""

    def _rename(self, inode: int, body: memoryview, head_bytes: int) -> bytes:
        directory, flags = (*view_wire.HANDLE.unpack_from(body), 0)
        if head_bytes == wire.RENAME2_IN.size:
            directory, flags, _ = wire.RENAME2_IN.unpack_from(body)
        if flags & ~wire.NO_REPLACE:
            raise OSError(errno.EINVAL, "names cannot be exchanged")
        old, new = (os.fsdecode(part) for part in bytes(body[head_bytes:]).split(b"\0")[:2])
        parent, new_parent = self._inodes[inode], self._inodes[directory]
        folder = _folder(parent)
        if folder is not _folder(new_parent):
            raise OSError(errno.EXDEV, "a name cannot change its volume")
        folder.rename((*parent.parts, old), (*new_parent.parts, new), replace=not flags & wire.NO_REPLACE)
        self._inodes.renamed(parent, old, new_parent, new)
        return b""

    def _create(self, inode: int, body: memoryview) -> bytes:
        flags, mode, _, _ = wire.CREATE_IN.unpack_from(body)
        parent, name = self._inodes[inode], _name(body[wire.CREATE_IN.size :])
        with self._files.opening(_folder(parent), (*parent.parts, name), flags | os.O_CREAT, mode) as opened:
            node, found = self._inodes.look_up(parent, name)
            return self._pack_entry(node, found) + opened(node)

    # --- directories --------------------------------------------------------------------------------------

    def _open_directory(self, inode: int, _body: memoryview) -> bytes:
        node = self._inodes[inode]
        if node.folder is None:
            shown = self._inodes.volumes.items()
            names = [name for name, volume in shown if volume.folder is not None and not volume.folder.removed]
        else:
            names = node.folder.names(node.parts)
        handle = next(self._numbers)
        self._directories[handle] = ([*_DOTS, *names], self._reserve())
        return view_wire.OPEN_OUT.pack(handle, 0, 0)

    def _read_directory(self, _inode: int, body: memoryview) -> bytes:
        handle, place, size = view_wire.READ_IN.unpack_from(body)
        if handle not in self._directories:
            raise OSError(errno.ESTALE, "another agent opened it")
        answer = b""
        for name in self._directories[handle][0][place:]:
            place += 1
            entry = view_wire.dirent(_FOUND_LATER, place, os.fsencode(name), 0)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def _release_directory(self, _inode: int, body: memoryview) -> bytes:
        self._directories.pop(view_wire.HANDLE.unpack_from(body)[0], None)
        return b""

    def _describe(self, inode: int, _body: memoryview) -> bytes:
        folder = self._inodes[inode].folder
        total, used = (0, 0) if folder is None else (folder.max_bytes // 4096, folder.used_bytes // 4096)
        free = max(0, total - used)
        return view_wire.STATFS_OUT.pack(total, free, free, total, free, 4096, 255, 4096, 0)


def _name(body: memoryview) -> str:
    return os.fsdecode(bytes(body).rstrip(b"\0"))


def _folder(node: VolumeInode) -> VolumeFolder:
    """Return the volume of a node. Raises `OSError` for the directory of all volumes."""
    if node.folder is None:
        raise OSError(errno.EROFS, "volumes are made with `aliquot volume create`")
    return node.folder


def _forbidden(_inode: int, _body: memoryview) -> bytes:
    raise OSError(errno.EPERM, "volumes have files and directories alone")
