"""What the origin's files hold: bytes that depend on the path and place alone, made without keeping any."""

import zlib
from collections.abc import Iterator
from functools import cache
from random import Random

from aliquot.core.units import MIB

PERIOD = MIB - 3  # not a power of two: a chunk in the wrong place is not the right chunk by chance
PIECE = 1 << 18


@cache
def _tape() -> memoryview:
    """Twice round, so that any piece of it is one stretch."""
    once = Random("aliquot").randbytes(PERIOD)
    return memoryview(once + once)


def pieces(path: str, start: int, length: int, piece: int = PIECE) -> Iterator[memoryview]:
    """The bytes of a file from `start` on."""
    tape, first = _tape(), zlib.crc32(path.encode())
    for place in range(start, start + length, piece):
        begin = (first + place) % PERIOD
        yield tape[begin : begin + min(piece, start + length - place)]
