"""For the tests of views: a real mount over a real cache, and an origin whose files can be held back."""

import contextlib
import os
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


def has_views() -> bool:
    try:
        fds = view_mount.make()
    except OSError:
        return False
    for fd in fds:
        os.close(fd)
    return True


class HeldOrigin(LocalOrigin):
    """A directory whose files arrive when they are let go, and that may go away."""

    def __init__(self, place: Path) -> None:
        super().__init__(str(place), {})
        self.held: dict[str, threading.Event] = {}
        self.asked = threading.Event()  # for one that is held back
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


class Seen:
    """A view, mounted at `place`."""

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
        """Requests of readers that wait for something."""
        return sum(len(connection._requests) for connection in list(self.views._connections.values()))

    def reader(self, code: str, *args: str) -> subprocess.Popen[str]:
        """A process of its own: one that waits in a page fault would hold up this one's interpreter."""
        command = [sys.executable, "-c", code, str(self.place), *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def read_by(self, code: str, *args: str) -> str:
        with self.reader(code, *args) as process:
            assert process.stdout is not None
            return process.stdout.read()


@contextlib.contextmanager
def mounted(place: Path) -> Iterator[tuple[int, Path]]:
    """A connection that nobody answers yet, and where it is mounted."""
    device, mount = view_mount.make()
    place.mkdir()
    linux.attach_mount(mount, str(place))
    os.close(mount)
    try:
        yield device, place
    finally:
        linux.unmount(str(place))


@contextlib.contextmanager
def seeing(
    base: Path,
    prepare: Callable[[HeldOrigin], None] = lambda _: None,
    others: Mapping[str, Origin] = MappingProxyType({}),
    **settings,
) -> Iterator[Seen]:
    """What lies at `base`/origin is the dataset `data`; when it is over, nothing is open any more."""
    origin = HeldOrigin(base / "origin")
    prepare(origin)
    cache = NodeCache(
        base / "cache",
        CacheSettings(**{"limit_bytes": 2**28, "revalidate_s": 0, **settings}),
        lambda name: others.get(name, origin),
    )
    try:
        with mounted(base / "seen") as (device, place):
            seen = Seen(place, origin, cache)
            seen.views.open(1, device, ["data", *others])
            yield seen
        until(lambda: not len(seen.views))  # the mount has gone, and so has the connection
        assert not cache.stats().open
        if seen.views._thread.is_alive():
            seen.views.stop()
    finally:
        for event in origin.held.values():
            event.set()
        cache.close()
