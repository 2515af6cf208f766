"""The inodes of a view: directories, and files in one version each."""

import itertools
import time
from collections.abc import Iterator

from msgspec import Struct

from aliquot.storage.records import FileKey, Listed

ROOT = 1


def unique_numbers() -> Iterator[int]:
    """Count up from the clock, so that no number was given by an earlier agent: the kernel may still use those."""
    return itertools.count(time.time_ns() >> 8)


class Inode(Struct, eq=False, gc=False):
    """A directory, or one version of a file. The view's root has no dataset."""

    dataset: str = ""
    path: str = ""  # relative to the dataset
    listed: Listed | None = None  # None for a directory
    number: int = 0  # 0 while the kernel does not know it
    lookups: int = 0  # lookups that the kernel has not forgotten

    @property
    def key(self) -> FileKey:
        return FileKey(self.dataset, self.path)

    def matches(self, listed: Listed | None) -> bool:
        """Return whether it has the same version, or is still a directory."""
        mine = self.listed
        if mine is None or listed is None:
            return mine is listed
        return mine.version == listed.version and mine.size == listed.size


class InodeTable:
    """The inodes that the kernel knows, by number."""

    def __init__(self) -> None:
        self._numbers = unique_numbers()
        self._nodes = {ROOT: Inode(number=ROOT)}
        self._newest: dict[str, dict[str, Inode]] = {}  # by dataset and path

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, number: int) -> Inode | None:
        return self._nodes.get(number)

    def look_up(self, node: Inode) -> int:
        """Count a lookup and return the inode's number, the same one for the same version."""
        newest = self._newest.setdefault(node.dataset, {})
        known = newest.get(node.path)
        if known is None or not known.matches(node.listed):
            known = newest[node.path] = node
            known.number = next(self._numbers)
            self._nodes[known.number] = known
        known.lookups += 1
        return known.number

    def forget(self, number: int, lookups: int) -> None:
        node = self._nodes.get(number)
        if node is None or number == ROOT:
            return
        node.lookups -= lookups
        if node.lookups <= 0:
            del self._nodes[number]
            newest = self._newest[node.dataset]
            if newest.get(node.path) is node:
                del newest[node.path]
