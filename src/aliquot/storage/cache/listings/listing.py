"""A dataset's files as a tree of directories."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from aliquot.storage.errors import PathError
from aliquot.storage.paths import check_path
from aliquot.storage.records import Listed

MAX_FILE_BYTES = (1 << 63) - 1  # the limit of Linux


class Listing:
    """The files of a dataset at one time. Immutable, so that any thread may read it.

    Invalid paths are left out. So is a file whose path is also a directory: an object store may have both `a` and
    `a/b`, a directory tree cannot.
    """

    def __init__(self, files: Iterable[Listed]) -> None:
        self.files: dict[str, Listed] = {}
        self.skipped = 0  # files left out
        directories: dict[str, dict[str, None]] = {"": {}}
        for file in files:
            if _is_path(file.path) and 0 <= file.size <= MAX_FILE_BYTES:
                self.files[file.path] = file
            else:
                self.skipped += 1
        for path in self.files:
            _add_to_parents(path, directories)
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
        """Return whether the path is a directory. The root is the empty path."""
        return path in self._directories

    def names(self, directory: str) -> Sequence[str]:
        """Return the sorted names of the files and directories in a directory. Raise `KeyError` if it is none."""
        return self._directories[directory]

    def matching(self, patterns: Sequence[str]) -> list[Listed]:
        """Return the files that match a shell pattern or lie below a directory of that name. No patterns: all files."""
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


def _add_to_parents(path: str, directories: dict[str, dict[str, None]]) -> None:
    while path:
        parent, _, name = path.rpartition("/")
        names = directories.get(parent)
        if names is not None:  # the parents of this directory are complete, too
            names[name] = None
            return
        directories[parent] = {name: None}
        path = parent
