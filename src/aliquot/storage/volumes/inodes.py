"""The files and directories of volumes that the kernel knows by number, for one sandbox.

An inode knows its parent and its name, so that a renamed directory takes everything below it along.
"""

import errno
import os
import stat
from collections.abc import Mapping

from aliquot.storage.view.inodes import ROOT, unique_numbers
from aliquot.storage.volumes.folder import FILES, VolumeFile, VolumeFolder
from aliquot.storage.volumes.paths import Parts


class VolumeInode:
    """A file or a directory. The root of all volumes has no folder, and the root of a volume no parent."""

    __slots__ = ("files", "folder", "found", "kept", "lookups", "name", "number", "parent")

    def __init__(self, folder: VolumeFolder | None, parent: "VolumeInode | None", name: str) -> None:
        self.folder = folder
        self.parent = parent
        self.name = name  # empty if it has none any more
        self.number = ROOT
        self.lookups = 0
        self.found: tuple[int, int] | None = None  # its inode on the disk, and its type
        self.files: list[VolumeFile] = []  # its open handles
        self.kept: tuple[int, int] | None = None  # the time and size of which the kernel may have cached pages

    @property
    def parts(self) -> Parts:
        """The path in the folder of the volume. Raises `OSError` if it was removed."""
        names: list[str] = []
        node = self
        while node.parent is not None:
            if not node.name:
                raise OSError(errno.ESTALE, "it was removed")
            names.append(node.name)
            node = node.parent
        return (FILES, *reversed(names))

    def stat(self) -> os.stat_result:
        """Return its state on the disk, also if it is open and was removed."""
        assert self.folder is not None  # noqa: S101 - the root is answered elsewhere
        return os.fstat(self.files[0].fd) if self.files else self.folder.stat(self.parts)


class VolumeInodes:
    """The inodes of one sandbox, by number."""

    def __init__(self, volumes: Mapping[str, VolumeFolder]) -> None:
        self._numbers = unique_numbers()
        self.root = VolumeInode(None, None, "")
        self._nodes = {ROOT: self.root}
        self._children: dict[tuple[int, str], VolumeInode] = {}
        self.volumes: dict[str, VolumeInode] = {}
        for name, folder in sorted(volumes.items()):
            node = self.volumes[name] = VolumeInode(folder, None, "")
            node.number = next(self._numbers)
            self._nodes[node.number] = node

    def __getitem__(self, number: int) -> VolumeInode:
        """Return the inode of this number. Raises `OSError` for one of an earlier agent."""
        node = self._nodes.get(number)
        if node is None:
            raise OSError(errno.ESTALE, "another agent gave this number")
        return node

    def look_up(self, parent: VolumeInode, name: str) -> tuple[VolumeInode, os.stat_result]:
        """Find an entry, and count that the kernel knows it. Raises `OSError` if there is none."""
        if parent is self.root:
            volume = self.volumes.get(name)
            if volume is None or volume.folder is None or volume.folder.removed:
                raise FileNotFoundError(errno.ENOENT, "there is no such volume")
            return volume, volume.stat()
        assert parent.folder is not None  # noqa: S101 - only the root has none
        found = parent.folder.stat((*parent.parts, name))
        identity = found.st_ino, stat.S_IFMT(found.st_mode)
        node = self._children.get((parent.number, name))
        if node is None or node.found != identity:
            if node is not None:
                node.name = ""  # another sandbox has replaced it
            node = self._children[parent.number, name] = VolumeInode(parent.folder, parent, name)
            node.number, node.found = next(self._numbers), identity
            self._nodes[node.number] = node
        node.lookups += 1
        return node, found

    def forget(self, number: int, lookups: int) -> None:
        node = self._nodes.get(number)
        if node is None or node.parent is None:
            return
        node.lookups -= lookups
        if node.lookups <= 0:
            del self._nodes[number]
            if self._children.get((node.parent.number, node.name)) is node:
                del self._children[node.parent.number, node.name]

    def removed(self, parent: VolumeInode, name: str) -> None:
        """Note that an entry has lost its name."""
        if (node := self._children.pop((parent.number, name), None)) is not None:
            node.name = ""

    def renamed(self, parent: VolumeInode, name: str, new_parent: VolumeInode, new_name: str) -> None:
        """Note the new name of an entry, which may have replaced another one."""
        if (parent, name) == (new_parent, new_name):
            return
        self.removed(new_parent, new_name)
        if (node := self._children.pop((parent.number, name), None)) is not None:
            node.parent, node.name = new_parent, new_name
            self._children[new_parent.number, new_name] = node
