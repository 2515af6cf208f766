"""Recorded references to blocks of files and disks, as requests: who, and how many bytes."""

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
    def __init__(self, name: str, requests: list[tuple[int, int]]) -> None:
        self.name = name
        self.requests = requests  # number of what is asked for, and its bytes

    @cached_property
    def bytes(self) -> int:
        """All that is asked for, each once."""
        return sum(dict(self.requests).values())


def read_sprite(lines: TextIO) -> Iterator[tuple[int, int]]:
    """A block number a line, from a network file system."""
    for line in lines:
        if line.strip().isdigit():
            yield int(line), PAGE_BYTES


def read_p3(lines: TextIO) -> Iterator[tuple[int, int]]:
    """First block and how many, from a workstation's disk: each stretch is one thing of its own size."""
    numbers: dict[tuple[str, str], int] = {}
    for line in lines:
        first, count, *_ = line.split()
        yield numbers.setdefault((first, count), len(numbers)), int(count) * BLOCK_BYTES


SOURCES: dict[str, tuple[str, Callable[[TextIO], Iterator[tuple[int, int]]]]] = {
    "sprite": ("lirs_sprite.txt.gz", read_sprite),
    "p3": ("arc_P3.lis.xz", read_p3),
}


def load(name: str, data: Path, most: int | None) -> BlockTrace:
    """The first `most` requests of a recorded set."""
    file, read = SOURCES[name]
    path = data / FOLDER / file
    opener = gzip.open if path.suffix == ".gz" else lzma.open
    try:
        with opener(path, "rt", encoding="ascii") as lines:
            return BlockTrace(name, list(read(lines))[:most])
    except OSError as error:
        raise InputError(f"--data: {path} cannot be read: {error.strerror}") from error
