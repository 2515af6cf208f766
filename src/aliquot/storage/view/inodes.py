"""What the kernel knows of a view by number: files in one version each, and directories."""

from msgspec import Struct

from aliquot.storage.records import FileKey, Listed
from aliquot.storage.view.numbers import numbers

ROOT = 1


class Inode(Struct, eq=False, gc=False):
    """The view's root has no dataset. A file is its version: another version is another node."""

    dataset: str = ""
    path: str = ""  # below the dataset
    listed: Listed | None = None  # None: a directory
    number: int = 0  # 0: the kernel does not know it
    times: int = 0  # that the kernel was told of it, and has not forgotten

    @property
    def key(self) -> FileKey:
        return FileKey(self.dataset, self.path)

    def is_as(self, listed: Listed | None) -> bool:
        """Whether it is the same version, or a directory still."""
        mine = self.listed
        if mine is None or listed is None:
            return mine is listed
        return mine.version == listed.version and mine.size == listed.size


class InodeTable:
    def __init__(self) -> None:
        self._numbers = numbers()
        self._nodes = {ROOT: Inode(number=ROOT)}
        self._newest: dict[str, dict[str, Inode]] = {}  # by dataset and path

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, number: int) -> Inode | None:
        return self._nodes.get(number)

    def told(self, node: Inode) -> int:
        """Its number, which the kernel now knows once more."""
        newest = self._newest.setdefault(node.dataset, {})
        known = newest.get(node.path)
        if known is None or not known.is_as(node.listed):
            known = newest[node.path] = node
            known.number = next(self._numbers)
            self._nodes[known.number] = known
        known.times += 1
        return known.number

    def forget(self, number: int, times: int) -> None:
        node = self._nodes.get(number)
        if node is None or number == ROOT:
            return
        node.times -= times
        if node.times <= 0:
            del self._nodes[number]
            newest = self._newest[node.dataset]
            if newest.get(node.path) is node:
                del newest[node.path]
