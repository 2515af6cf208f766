"""The content of the origin's files: bytes computed from path and offset, so that none are stored."""

import zlib
from collections.abc import Iterator
from functools import cache
from random import Random

from aliquot.core.units import MIB

PERIOD = MIB - 3  # not a power of two, so that a chunk at a wrong offset never matches by chance
PIECE_BYTES = 1 << 18


@cache
def _pattern() -> memoryview:
    """Return the repeated bytes twice over, so that every piece is one slice."""
    once = Random("aliquot").randbytes(PERIOD)
    return memoryview(once + once)


def pieces(path: str, start: int, length: int, piece: int = PIECE_BYTES) -> Iterator[memoryview]:
    """Yield `length` bytes of a file from offset `start` on, in pieces."""
    pattern, first = _pattern(), zlib.crc32(path.encode())
    for offset in range(start, start + length, piece):
        begin = (first + offset) % PERIOD
        yield pattern[begin : begin + min(piece, start + length - offset)]
