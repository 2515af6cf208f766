"""The node's `ViewProvider` for tests of sandboxes, served by a real cache in this process."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from aliquot.live.node.base import Launch
from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset
from aliquot.storage.view.events import FileOpened
from aliquot.storage.view.views import ViewServer


class Viewer:
    def __init__(self, cache: NodeCache) -> None:
        self.cache = cache
        self.told: list[FileOpened] = []
        self.shown = ViewServer(cache, self.told.append)
        self.closed: list[int] = []

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        self.shown.open(sandbox, device, launch.datasets)

    def close(self, sandbox: int) -> None:
        self.closed.append(sandbox)
        self.shown.close(sandbox)


@contextlib.contextmanager
def viewer(directory: Path, datasets: Mapping[str, Path], **settings) -> Iterator[Viewer]:
    known = {name: Dataset(name, str(place)) for name, place in datasets.items()}
    cache = NodeCache(
        directory, CacheSettings(**{"limit_bytes": 2**30, **settings}), lambda name: origin_for(known[name])
    )
    made = Viewer(cache)
    try:
        yield made
    finally:
        made.shown.stop()
        cache.close()


def descriptors_of_fuse() -> int:
    """Return the number of descriptors of FUSE that this process has open."""
    count = 0
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += fd.readlink() == Path("/dev/fuse")
    return count
