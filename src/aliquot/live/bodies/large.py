"""Memory for bodies that are too large to be copied, or to be checked on the event loop: one mapping per body.

A mapping can be passed to another process. Code uses a `memoryview` of it in place of `bytes`. The memory is freed
with the last view.
"""

import mmap
import os
from typing import ClassVar, Self

from aliquot.budgets import Reservation
from aliquot.core.units import MIB

LARGE_BODY_BYTES = MIB  # above this size a body has a mapping of its own
# Space in front of every body, for a prefix. Pages that are not written take no memory.
PREFIX_BYTES = MIB


class BodyMemoryError(Exception):
    """All large bodies together exceed their limit."""


class BodyMapping(mmap.mmap):
    """A memory mapping with a descriptor, which is closed with the last view of it."""

    in_use: ClassVar[int] = 0  # bytes of all mappings together, by their full size
    fd: int
    reserved: tuple[Reservation, ...]  # its parts of budgets, held as long as the mapping

    def __new__(cls, size: int, reserved: tuple[Reservation, ...] = ()) -> Self:
        fd = os.memfd_create("aliquot-body")
        try:
            os.ftruncate(fd, size)
            made = super().__new__(cls, fd, size)
        except BaseException:
            os.close(fd)
            raise
        made.fd = fd
        made.reserved = reserved
        BodyMapping.in_use += size
        return made

    def __del__(self) -> None:
        BodyMapping.in_use -= len(self)
        os.close(self.fd)


def allocate(size: int, reserved: tuple[Reservation, ...] = ()) -> memoryview:
    """Return memory for a body of that size, which holds its parts of budgets. A smaller body is a slice of it."""
    return memoryview(BodyMapping(PREFIX_BYTES + size, reserved))[PREFIX_BYTES:]


def mapping_of(body: memoryview) -> BodyMapping | None:
    return body.obj if isinstance(body.obj, BodyMapping) else None


def put_before(prefix: bytes, body: memoryview, skip: int) -> memoryview:
    """Return the body from its byte `skip` on with the prefix before it, without a copy if the prefix fits."""
    mapping = mapping_of(body)
    end = PREFIX_BYTES + len(body)
    begin = PREFIX_BYTES + skip - len(prefix)
    if mapping is None or begin < 0:
        joined = allocate(len(prefix) + len(body) - skip)
        joined[: len(prefix)] = prefix
        joined[len(prefix) :] = body[skip:]
        return joined
    whole = memoryview(mapping)
    whole[begin : begin + len(prefix)] = prefix
    return whole[begin:end]


class IncomingBody:
    """A body that arrives in parts, which are collected in a list or, above a mebibyte, in a mapping."""

    __slots__ = ("_max_body_bytes", "_max_total_bytes", "_memory", "_parts", "size")

    def __init__(self, max_body_bytes: int, max_total_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes  # of all bodies together
        self._parts: list[bytes] = []
        self._memory: memoryview | None = None
        self.size = 0

    def add(self, part: bytes) -> None:
        """Add the next part. Raises `BodyMemoryError` when the body is large and there is no memory for it."""
        size = self.size
        self.size = size + len(part)
        if self._memory is not None:
            self._memory[size : self.size] = part
            return
        self._parts.append(part)
        if self.size > LARGE_BODY_BYTES:
            if BodyMapping.in_use + self._max_body_bytes > self._max_total_bytes:
                raise BodyMemoryError
            self._memory, at = allocate(self._max_body_bytes), 0
            for one in self._parts:
                self._memory[at : at + len(one)] = one
                at += len(one)
            self._parts.clear()

    def whole(self) -> bytes | memoryview:
        """Return the body, which is not kept here any longer."""
        if self._memory is not None:
            memory, self._memory = self._memory, None
            return memory[: self.size]
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)
