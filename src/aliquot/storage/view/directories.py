"""The directories of one view, from the listings of its datasets. Reading them transfers no file."""

import time
from collections.abc import Sequence

from msgspec import Struct

from aliquot.budgets import Reservation
from aliquot.storage.view import wire
from aliquot.storage.view.contents import DatasetContents, NodeContents
from aliquot.storage.view.handles import TenantHandles
from aliquot.storage.view.inodes import ROOT, Inode, InodeTable, unique_numbers

VALID_S = 10  # how long the kernel caches names and attributes; an open always asks
_UNKNOWN = 0xFFFFFFFF  # inode number of an entry that has none yet
_DOTS = (b".", b"..")
_NO_ENTRY = bytes(wire.ENTRY_OUT.size)  # for `.` and `..`, whose attributes the kernel knows


class OpenDirectory(Struct, eq=False):
    """An open directory, with the names it had when it was opened."""

    node: Inode
    names: Sequence[str]
    reserved: Reservation  # its part of the tenant's open files


class Directories:
    """The root directory with the datasets, and the directories below them."""

    def __init__(
        self, names: NodeContents, inodes: InodeTable, datasets: Sequence[str], handles: TenantHandles
    ) -> None:
        self._datasets = tuple(sorted(datasets))
        self._hidden: set[str] = set()  # datasets hidden from the sandbox for good
        self._block_bytes = 4096  # preferred size of reads
        self._names = names
        self._inodes = inodes
        self._tenant_handles = handles
        self._made_s = time.time()
        self._handles = unique_numbers()
        self._open: dict[int, OpenDirectory] = {}

    def child(self, node: Inode, name: str) -> Inode | None:
        """Return the entry of this name, or None. The dataset's listing must be known."""
        if not node.dataset:
            return Inode(name) if name in self._shown() else None
        return _child(node, name, self._names.contents(node.dataset))

    def hide(self, dataset: str) -> None:
        self._hidden.add(dataset)

    def set_block_bytes(self, size: int) -> None:
        """Set the preferred size of reads that programs see."""
        self._block_bytes = size

    def shows(self, dataset: str) -> bool:
        return dataset not in self._hidden and not self._names.is_removed(dataset)

    def _shown(self) -> tuple[str, ...]:
        return tuple(filter(self.shows, self._datasets))

    # --- attributes -------------------------------------------------------------------------------------------

    def attributes(self, node: Inode, inode: int) -> tuple[int, ...]:
        listed = node.listed
        if listed is None:
            return wire.attributes(inode, 4096, self._made_s, directory=True, block=4096)
        return wire.attributes(inode, listed.size, listed.mtime_s, directory=False, block=self._block_bytes)

    def entry(self, node: Inode, inode: int) -> bytes:
        return wire.ENTRY_OUT.pack(inode, 0, VALID_S, VALID_S, 0, 0, *self.attributes(node, inode))

    # --- reading ----------------------------------------------------------------------------------------------

    def open(self, node: Inode) -> int:
        """Open a directory and return its handle.

        Raises `KeyError` if it does not exist any more, and `TooManyFilesError`.
        """
        reserved = self._tenant_handles.reserve(node, len(self._open))
        names = self._names.contents(node.dataset).listing.names(node.path) if node.dataset else self._shown()
        handle = next(self._handles)
        self._open[handle] = OpenDirectory(node, names, reserved)
        return handle

    def release(self, handle: int) -> None:
        self._open.pop(handle, None)

    def read(self, handle: int, place: int, size: int, *, plus: bool) -> bytes:
        """Return as many entries from `place` on as fit into `size` bytes, with attributes if `plus` is set.

        Raises `KeyError` if the handle is unknown or the dataset is hidden.
        """
        read = self._open[handle]
        if not self.shows(read.node.dataset):
            raise KeyError(handle)
        parts: list[bytes] = []
        for dots in _DOTS[place:]:
            place += 1
            parts.append((_NO_ENTRY if plus else b"") + wire.dirent(ROOT, place, dots, wire.DIRECTORY_TYPE))
        room = size - sum(map(len, parts))
        contents = self._names.contents(read.node.dataset) if read.node.dataset else None
        while place - len(_DOTS) < len(read.names):
            name = read.names[place - len(_DOTS)]
            place += 1
            room -= _entry_bytes(name, plus=plus)
            if room < 0:
                break
            node = Inode(name) if contents is None else _child(read.node, name, contents)
            if node is not None:  # else it was removed meanwhile
                parts.append(self._entry(node, place, name.encode(), plus=plus))
        return b"".join(parts)

    def _entry(self, node: Inode, place: int, name: bytes, *, plus: bool) -> bytes:
        kind = wire.DIRECTORY_TYPE if node.listed is None else wire.FILE_TYPE
        if not plus:
            return wire.dirent(_UNKNOWN, place, name, kind)
        inode = self._inodes.look_up(node)  # counts as a lookup: the kernel sends FORGET later
        return self.entry(node, inode) + wire.dirent(inode, place, name, kind)


def _child(node: Inode, name: str, contents: DatasetContents) -> Inode | None:
    path = f"{node.path}/{name}" if node.path else name
    listed = contents.find(path)
    if listed is not None:
        return Inode(node.dataset, listed.path, listed)  # shares the listing's string to save memory
    return Inode(node.dataset, path) if contents.listing.is_directory(path) else None


def _entry_bytes(name: str, *, plus: bool) -> int:
    length = wire.DIRENT.size + len(name.encode())
    return length + -length % 8 + (wire.ENTRY_OUT.size if plus else 0)
