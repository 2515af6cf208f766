"""The targets that the benchmark reads: the disk, and views that other processes serve."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from aliquot.live.node.sandbox_views import ViewMounts
from aliquot_bench.views import reader, view_agent


class ReaderProcess:
    """A process that reads files in a mount namespace of its own."""

    def __init__(self, mount: int, folder: Path) -> None:
        command = [sys.executable, reader.__file__, str(mount), str(folder)]
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, pass_fds=[mount]
        )

    def request(self, how: str, path: str) -> float:
        """Read a path in one of the ways of `reader.py`, and return the seconds it took."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the reader has no pipes")
        self._process.stdin.write(f"{how} {path}\n")
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class ReadTarget(Struct, frozen=True):
    """A way to the same files: through a view, or directly on the disk."""

    name: str
    reader: ReaderProcess
    large: str  # path of the large file
    small: str  # directory of the small files
    disk_path: str  # path of the large file on the disk

    def request(self, how: str, path: str) -> float:
        return self.reader.request(how, path)


@contextmanager
def view(name: str, folder: Path, way: str) -> Iterator[ReadTarget]:
    """Serve FOLDER/origin through a view. Its files are all cached, and are `passed` through or read in `pieces`."""
    mounts = ViewMounts()
    device, mount = mounts.make()
    mounted = folder / f"mounted-{way}"
    mounted.mkdir()
    command = [sys.executable, view_agent.__file__, str(device), str(folder), way]
    agent = subprocess.Popen(command, pass_fds=[device], stdout=subprocess.PIPE)  # noqa: S603 - a fixed command
    reading = ReaderProcess(mount, mounted)
    os.close(device)
    os.close(mount)
    try:
        if agent.stdout is None or not agent.stdout.readline():
            raise RuntimeError("the agent of the view has ended; its output is above")
        large = folder / "origin" / "large"
        on_disk = _cached(folder, way, large.stat().st_size)
        yield ReadTarget(name, reading, str(mounted / "data" / "large"), str(mounted / "data" / "small"), str(on_disk))
    finally:
        agent.kill()
        agent.communicate()
        reading.close()
        mounts.close()


def disk(name: str, folder: Path, view: ReadTarget) -> ReadTarget:
    """Return the target that reads the file in the cache of this view, without the view."""
    return ReadTarget(name, view.reader, view.disk_path, str(folder / "origin" / "small"), view.disk_path)


def _cached(folder: Path, way: str, size: int) -> Path:
    return next(path for path in (folder / f"cache-{way}").rglob("*") if path.is_file() and path.stat().st_size == size)
