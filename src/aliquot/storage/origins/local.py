"""A directory of this machine, such as a mounted NAS. Files outside the directory are never read."""

import os
import stat as modes
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aliquot.core.units import KIB
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError, StorageError
from aliquot.storage.origins.base import Origin, thread_buffer
from aliquot.storage.paths import check_path
from aliquot.storage.records import Listed

# A file system's clock advances up to every 10 ms. Only a file older than that is sure to get another time when it is
# written again.
SETTLED_S = 0.02
MIN_HOLE_BYTES = 64 * KIB  # reading less is as fast as asking whether it is a hole


class LocalOrigin(Origin):
    """Follows links that stay inside. A listing follows at most one link to a directory on each path."""

    may_be_unmounted = True

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        super().__init__(url, options)
        if options:
            raise OriginError(f"options {', '.join(sorted(options))}: a directory of this machine takes none")
        self._named = Path(url.removeprefix("file://"))
        if not self._named.is_absolute():
            raise PathError(f"url {url!r}: a directory is named by its absolute path, such as /srv/imagenet")
        self._mount = _mount_of(str(self._named))

    @property
    def link(self) -> str:
        return f"mount {self._mount}"

    @property
    def _root(self) -> str:
        """The real path, resolved each time because a link may change and a mount may come back."""
        root = os.path.realpath(self._named)
        if not Path(root).is_dir():
            raise OriginError(f"{self.shown_url}: is not there, or not a directory; is it mounted?")
        return root

    def _absent(self, root: str, path: str) -> StorageError:
        """Return the error for a missing file. An empty root is probably not mounted."""
        try:
            with os.scandir(root) as entries:
                is_empty = next(entries, None) is None
        except OSError as error:
            return self.failed("cannot be listed", error)
        if is_empty:
            return OriginError(f"{self.shown_url}: is empty; is it mounted?")
        return AbsentError(f"{self.shown_url}: has no file {path}")

    def check(self) -> None:
        try:
            with os.scandir(self._root) as entries:
                next(entries, None)
        except OSError as error:
            raise self.failed("cannot be listed", error) from error

    def files(self) -> Iterator[Listed]:
        root = self._root
        yield from self._below(root, root, "", through_link=False)

    def _below(self, root: str, directory: str, prefix: str, *, through_link: bool) -> Iterator[Listed]:
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise self.failed(f"{prefix or '.'} cannot be listed", error) from error
        for entry in found:
            path, linked = prefix + entry.name, entry.is_symlink()
            if linked and not _is_inside(root, entry.path):
                continue
            try:
                about = entry.stat()
            except OSError:  # removed meanwhile, or a dangling link
                continue
            if modes.S_ISREG(about.st_mode):
                yield _listed(path, about)
            elif modes.S_ISDIR(about.st_mode) and not (linked and (through_link or _is_above(entry.path))):
                yield from self._below(root, entry.path, path + "/", through_link=through_link or linked)

    def stat(self, path: str) -> Listed:
        with self._opened(path) as fd:
            about = os.fstat(fd)
            if time.time() - about.st_mtime < SETTLED_S:
                time.sleep(SETTLED_S)
                about = os.fstat(fd)
            return _listed(path, about)

    def empty(self, listed: Listed, offset: int, length: int) -> bool:
        if length < MIN_HOLE_BYTES:
            return False
        with self._opened(listed.path) as fd:
            try:
                data = os.lseek(fd, offset, os.SEEK_DATA)
            except OSError:  # no data up to the end, or not supported
                return _ends_in_a_hole(fd, offset) and self._same(listed, fd)
            return data >= offset + length and self._same(listed, fd)

    def pieces(self, listed: Listed, offset: int, length: int) -> Iterator[memoryview]:
        buffer = thread_buffer()
        with self._opened(listed.path) as fd:
            if time.time() - os.fstat(fd).st_mtime < SETTLED_S:
                time.sleep(SETTLED_S)
            while length > 0 and (count := self._read_into(buffer[:length], fd, offset, listed.path)):
                yield buffer[:count]
                offset, length = offset + count, length - count
            if not self._same(listed, fd) or length:
                raise ChangedError(f"{self.shown_url}: {listed.path} has changed")

    def _read_into(self, buffer: memoryview, fd: int, offset: int, path: str) -> int:
        try:
            return os.preadv(fd, [buffer], offset)
        except OSError as error:
            raise self.failed(f"{path} cannot be read", error) from error

    def confirm(self, listed: Listed) -> None:
        # Opened again, because NFS serves the attributes of an open file from its cache and revalidates on open.
        with self._opened(listed.path) as fd:
            if not self._same(listed, fd):
                raise ChangedError(f"{self.shown_url}: {listed.path} has changed")

    @staticmethod
    def _same(listed: Listed, fd: int) -> bool:
        return _version(os.fstat(fd)) == listed.version

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        root = self._root
        try:
            # Non-blocking, because opening a pipe would wait for a writer.
            fd = os.open(f"{root}/{check_path(path)}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._absent(root, path) from error
        except OSError as error:
            raise self.failed(f"{path} cannot be opened", error) from error
        try:
            # Checks the opened file rather than its name, which could be replaced by a link meanwhile.
            if not _is_below(root, str(Path(f"/proc/self/fd/{fd}").readlink())):
                raise PathError(f"path {path!r}: a link on the way leaves the dataset")
            if not modes.S_ISREG(os.fstat(fd).st_mode):
                raise AbsentError(f"{self.shown_url}: {path} is not a file")
            yield fd
        finally:
            os.close(fd)


def _listed(path: str, about: os.stat_result) -> Listed:
    return Listed(path, about.st_size, _version(about), mtime_s=about.st_mtime)


def _version(about: os.stat_result) -> str:
    # The ctime reveals writes whose mtime was set back, as `rsync -t` and `cp -p` do.
    return f"{about.st_mtime_ns:x}-{about.st_ctime_ns:x}-{about.st_size:x}"


def _is_below(root: str, path: str) -> bool:
    return path.removesuffix(" (deleted)").startswith(root.rstrip("/") + "/")


def _is_inside(root: str, path: str) -> bool:
    return _is_below(root, os.path.realpath(path))


def _is_above(path: str) -> bool:
    """Return whether a link leads to a directory that contains it, which would be an endless loop."""
    target = os.path.realpath(path)
    return _is_below(target, os.path.realpath(Path(path).parent) + "/x")


def _ends_in_a_hole(fd: int, offset: int) -> bool:
    try:
        return os.lseek(fd, offset, os.SEEK_HOLE) == offset < os.fstat(fd).st_size
    except OSError:
        return False


def _mount_of(path: str) -> str:
    """Return the mount point of a path without touching the file system, which may hang."""
    try:
        mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return "/"
    return max((mount for mount in mounts if _is_below(mount, path + "/")), key=len, default="/")
