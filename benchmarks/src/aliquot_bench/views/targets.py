"""Where the benchmark reads the same files: on the disk, and through views that other processes answer."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from aliquot.live.node.view_mounts import ViewMounts
from aliquot_bench.views import reader, view_agent


class ReaderProcess:
    """A process that reads for us, in a mount namespace of its own."""

    def __init__(self, mount: int, folder: Path) -> None:
        command = [sys.executable, reader.__file__, str(mount), str(folder)]
        self._process = subprocess.Popen(  # noqa: S603 - our own
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, pass_fds=[mount]
        )

    def ask(self, how: str, path: str) -> float:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the reader has no pipes")
        self._process.stdin.write(f"{how} {path}\n")
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class ReadTarget(Struct, frozen=True):
    name: str
    reader: ReaderProcess
    large: str
    small: str  # a directory
    below: str  # the large file as it is on the disk

    def ask(self, how: str, path: str) -> float:
        return self.reader.ask(how, path)


@contextmanager
def view(name: str, folder: Path, way: str) -> Iterator[ReadTarget]:
    """FOLDER/origin through a view whose files are `passed` or read in `pieces`, all of them cached."""
    mounts = ViewMounts()
    device, mount = mounts.make()
    seen = folder / f"seen-{way}"
    seen.mkdir()
    command = [sys.executable, view_agent.__file__, str(device), str(folder), way]
    agent = subprocess.Popen(command, pass_fds=[device], stdout=subprocess.PIPE)  # noqa: S603 - our own
    reading = ReaderProcess(mount, seen)
    os.close(device)
    os.close(mount)
    try:
        if agent.stdout is None or not agent.stdout.readline():
            raise RuntimeError("the view's agent has ended; what it said is above")
        large = folder / "origin" / "large"
        below = _cached(folder, way, large.stat().st_size)
        yield ReadTarget(name, reading, str(seen / "data" / "large"), str(seen / "data" / "small"), str(below))
    finally:
        agent.kill()
        agent.communicate()
        reading.close()
        mounts.close()


def disk(name: str, folder: Path, beside: ReadTarget) -> ReadTarget:
    """The same file without a view: as the cache keeps it."""
    return ReadTarget(name, beside.reader, beside.below, str(folder / "origin" / "small"), beside.below)


def _cached(folder: Path, way: str, size: int) -> Path:
    return next(path for path in (folder / f"cache-{way}").rglob("*") if path.is_file() and path.stat().st_size == size)
