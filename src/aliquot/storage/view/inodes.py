"""What the kernel knows of a view by number: files in one version each, and directories."""

import itertools
import time
from collections.abc import Hashable

from msgspec import Struct

from aliquot.storage.records import FileKey, Listed

ROOT = 1


class Node(Struct, frozen=True, gc=False):
    """The view's root has no dataset. A file is its version: another version is another node."""

    dataset: str = ""
    path: str = ""  # below the dataset
    listed: Listed | None = None  # None: a directory

    @property
    def key(self) -> FileKey:
        return FileKey(self.dataset, self.path)

    @property
    def identity(self) -> Hashable:
        return self.dataset, self.path, None if self.listed is None else (self.listed.version, self.listed.size)


class Inodes:
    """Numbers are never used twice, nor by another agent after this one: the kernel may remember them."""

    def __init__(self) -> None:
        self._numbers = itertools.count(time.time_ns() >> 8)
        self._nodes: dict[int, tuple[Node, list[int]]] = {ROOT: (Node(), [1])}
        self._known: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, number: int) -> Node | None:
        found = self._nodes.get(number)
        return None if found is None else found[0]

    def told(self, node: Node) -> int:
        """Its number, which the kernel now knows once more."""
        identity = node.identity
        number = self._known.get(identity)
        if number is None:
            number = self._known[identity] = next(self._numbers)
            self._nodes[number] = node, [1]
        else:
            self._nodes[number][1][0] += 1
        return number

    def forget(self, number: int, times: int) -> None:
        found = self._nodes.get(number)
        if found is None or number == ROOT:
            return
        node, count = found
        count[0] -= times
        if count[0] <= 0:
            del self._nodes[number]
            del self._known[node.identity]
