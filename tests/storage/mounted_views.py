"""Helpers for the tests of views: a real mount over a real cache, and an origin whose files can be held back."""

import contextlib
import hashlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from scripted_origin import until

from aliquot.runtime import linux, view_mount
from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.errors import OriginError
from aliquot.storage.origins.base import Origin
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.view.events import FileOpened, PieceWaited
from aliquot.storage.view.views import ViewServer

# A program that prints the sum of a file.
READ = "import sys, hashlib; print(hashlib.md5(open(sys.argv[1] + '/' + sys.argv[2], 'rb').read()).hexdigest())"


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()  # noqa: S324 - a sum, no secret


def make_origin(place: Path) -> Path:
    """Make a directory with a few files, one of them of several megabytes."""
    (place / "a" / "b").mkdir(parents=True)
    (place / "plain.txt").write_text("hello")
    (place / "a" / "b" / "numbers").write_bytes(random.Random(1).randbytes(3_000_000))
    (place / "a" / "b" / "empty").touch()
    os.utime(place / "plain.txt", (1_000_000_000.25, 1_000_000_000.25))
    return place


def has_views() -> bool:
    try:
        fds = view_mount.make()
    except OSError:
        return False
    for fd in fds:
        os.close(fd)
    return True


class HeldOrigin(LocalOrigin):
    """A directory whose reads wait until the test releases them, and that can be down."""

    def __init__(self, place: Path) -> None:
        super().__init__(str(place), {})
        self.held: dict[str, threading.Event] = {}
        self.asked = threading.Event()  # set when a held file is read
        self.down = False

    def hold(self, path: str) -> threading.Event:
        self.held[path] = threading.Event()
        return self.held[path]

    def files(self):
        self._answer()
        return super().files()

    def stat(self, path):
        self._answer()
        return super().stat(path)

    def pieces(self, listed, offset, length):
        self._answer()
        if listed.path in self.held:
            self.asked.set()
            self.held[listed.path].wait()
        return super().pieces(listed, offset, length)

    def _answer(self) -> None:
        if self.down:
            raise OriginError("the origin is away")


class MountedView:
    """A view that is mounted at `place`, and the events that it reported."""

    def __init__(self, place: Path, origin: HeldOrigin, cache: NodeCache) -> None:
        self.place = place
        self.origin = origin
        self.cache = cache
        self.told: list[FileOpened] = []
        self.waits: list[PieceWaited] = []
        self.views = ViewServer(cache, self._tell)

    def _tell(self, told: FileOpened | PieceWaited) -> None:
        if isinstance(told, FileOpened):
            self.told.append(told)
        else:
            self.waits.append(told)

    def waiting(self) -> int:
        """Return the number of requests that wait."""
        return sum(len(connection._requests) for connection in list(self.views._connections.values()))

    def reader(self, code: str, *args: str) -> subprocess.Popen[str]:
        """Start a reader in its own process, because waiting in a page fault would block this interpreter."""
        command = [sys.executable, "-c", code, str(self.place), *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def read_by(self, code: str, *args: str) -> str:
        with self.reader(code, *args) as process:
            assert process.stdout is not None
            return process.stdout.read()


@contextlib.contextmanager
def mounted(place: Path) -> Iterator[tuple[int, Path]]:
    """Mount a view without a server and yield its descriptor and place."""
    device, mount = view_mount.make()
    place.mkdir()
    linux.attach_mount(mount, str(place))
    os.close(mount)
    try:
        yield device, place
    finally:
        linux.unmount(str(place))


@contextlib.contextmanager
def mounted_view(
    base: Path,
    prepare: Callable[[HeldOrigin], None] = lambda _: None,
    others: Mapping[str, Origin] = MappingProxyType({}),
    **settings,
) -> Iterator[MountedView]:
    """Mount a view of the dataset `data` at `base`/origin, and check at the end that nothing is left open."""
    origin = HeldOrigin(base / "origin")
    prepare(origin)
    cache = NodeCache(
        base / "cache",
        CacheSettings(**{"limit_bytes": 2**28, "revalidate_s": 0, **settings}),
        lambda name: others.get(name, origin),
    )
    try:
        with mounted(base / "view") as (device, place):
            view = MountedView(place, origin, cache)
            view.views.open(1, device, ["data", *others])
            yield view
        until(lambda: not len(view.views))  # unmounting ends the connection
        assert not cache.stats().open
        if view.views._thread.is_alive():
            view.views.stop()
    finally:
        for event in origin.held.values():
            event.set()
        cache.close()
