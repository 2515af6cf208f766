"""A dataset's files as a tree: what a directory shows, and what a path is."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from aliquot.storage.errors import PathError
from aliquot.storage.paths import check_path
from aliquot.storage.records import Listed

LARGEST_BYTES = 1 << 63  # as Linux has it


class Listing:
    """Made once, never changed: any thread may read it.

    Names that are no paths of a dataset are left out, and so is a file where others are below its name: an object
    store may have both `a` and `a/b`, a directory tree cannot.
    """

    def __init__(self, files: Iterable[Listed]) -> None:
        self.files: dict[str, Listed] = {}
        self.skipped = 0  # that are not shown
        directories: dict[str, dict[str, None]] = {"": {}}
        for file in files:
            if _is_path(file.path) and 0 <= file.size < LARGEST_BYTES:
                self.files[file.path] = file
            else:
                self.skipped += 1
        for path in self.files:
            _enter(path, directories)
        for path in [path for path in self.files if path in directories]:
            del self.files[path]
            self.skipped += 1
        self._directories = {path: tuple(sorted(names)) for path, names in directories.items()}
        self.bytes = sum(file.size for file in self.files.values())

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Listed]:
        return iter(self.files.values())

    def find(self, path: str) -> Listed | None:
        return self.files.get(path)

    def is_directory(self, path: str) -> bool:
        """The root is the empty path."""
        return path in self._directories

    def names(self, directory: str) -> Sequence[str]:
        """What is in it, sorted: files, and directories without a slash. `KeyError` when it is none."""
        return self._directories[directory]

    def matching(self, patterns: Sequence[str]) -> list[Listed]:
        """Files whose path matches a shell pattern, or that lie below a directory of that name; no pattern: all."""
        if not patterns:
            return list(self)
        below = tuple(f"{pattern.strip('/')}/" for pattern in patterns)
        return [
            file
            for file in self
            if file.path.startswith(below) or any(fnmatchcase(file.path, pattern) for pattern in patterns)
        ]


def _is_path(path: str) -> bool:
    try:
        check_path(path)
    except PathError:
        return False
    return True


def _enter(path: str, directories: dict[str, dict[str, None]]) -> None:
    while path:
        parent, _, name = path.rpartition("/")
        names = directories.get(parent)
        if names is not None:  # and so are the parents of this one
            names[name] = None
            return
        directories[parent] = {name: None}
        path = parent
