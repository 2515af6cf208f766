"""Recorded references to blocks of files and disks, as requests with a number and a size."""

import gzip
import lzma
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TextIO

from aliquot.core.errors import InputError

FOLDER = "block_traces"
BLOCK_BYTES = 512
PAGE_BYTES = 4096


class BlockTrace:
    """A recorded trace of block requests."""

    def __init__(self, name: str, requests: list[tuple[int, int]]) -> None:
        self.name = name
        self.requests = requests  # number and size in bytes of each block

    @cached_property
    def bytes(self) -> int:
        """Return the bytes of all distinct blocks."""
        return sum(dict(self.requests).values())


def read_sprite(lines: TextIO) -> Iterator[tuple[int, int]]:
    """Read one block number per line, from a network file system."""
    for line in lines:
        if line.strip().isdigit():
            yield int(line), PAGE_BYTES


def read_p3(lines: TextIO) -> Iterator[tuple[int, int]]:
    """Read the first block and the number of blocks per line, from a workstation's disk. Each range is one object."""
    numbers: dict[tuple[str, str], int] = {}
    for line in lines:
        first, count, *_ = line.split()
        yield numbers.setdefault((first, count), len(numbers)), int(count) * BLOCK_BYTES


SOURCES: dict[str, tuple[str, Callable[[TextIO], Iterator[tuple[int, int]]]]] = {
    "sprite": ("lirs_sprite.txt.gz", read_sprite),
    "p3": ("arc_P3.lis.xz", read_p3),
}


def load(name: str, data: Path, max_requests: int | None) -> BlockTrace:
    """Load the first `max_requests` requests of a trace."""
    file, read = SOURCES[name]
    path = data / FOLDER / file
    opener = gzip.open if path.suffix == ".gz" else lzma.open
    try:
        with opener(path, "rt", encoding="ascii") as lines:
            return BlockTrace(name, list(read(lines))[:max_requests])
    except OSError as error:
        raise InputError(f"--data: {path} cannot be read: {error.strerror}") from error
