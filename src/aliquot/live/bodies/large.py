"""Bodies too large to be copied, or to be looked over on the event loop: each is one mapping of memory.

Another process can be given the mapping, and looks into it where it is. What stands in for `bytes` everywhere is a
`memoryview` of it; when the last one is gone, so is the memory, at once.
"""

import mmap
import os
from typing import ClassVar, Self

from aliquot.core.units import MIB

LARGE_BODY_BYTES = MIB  # from here on a body is one of these
# Before every body, for what is put in front of it. Pages that nobody writes to cost nothing.
PREFIX_BYTES = MIB


class BodyMemoryError(Exception):
    """All large bodies together are more than they may be."""


class BodyMapping(mmap.mmap):
    """Memory with a descriptor, for as long as anyone looks at it."""

    in_use: ClassVar[int] = 0  # of all together, as if they were full
    fd: int

    def __new__(cls, size: int) -> Self:
        fd = os.memfd_create("aliquot-body")
        try:
            os.ftruncate(fd, size)
            made = super().__new__(cls, fd, size)
        except BaseException:
            os.close(fd)
            raise
        made.fd = fd
        BodyMapping.in_use += size
        return made

    def __del__(self) -> None:
        BodyMapping.in_use -= len(self)
        os.close(self.fd)


def allocate(size: int) -> memoryview:
    """Room for a body of that size; to be cut when it turns out to be smaller."""
    return memoryview(BodyMapping(PREFIX_BYTES + size))[PREFIX_BYTES:]


def mapping_of(body: memoryview) -> BodyMapping | None:
    return body.obj if isinstance(body.obj, BodyMapping) else None


def put_before(prefix: bytes, body: memoryview, skip: int) -> memoryview:
    """The body from its byte `skip` on with the prefix before it: in its place where there is room, else copied."""
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
    """A body that comes in parts: they are kept as they are until they are many bytes, then put in their place."""

    __slots__ = ("_bound", "_most", "_parts", "_room", "size")

    def __init__(self, most_bytes: int, bound: int) -> None:
        self._most = most_bytes  # what is not written to costs nothing
        self._bound = bound  # for all bodies together
        self._parts: list[bytes] = []
        self._room: memoryview | None = None
        self.size = 0

    def add(self, part: bytes) -> None:
        """Raises `BodyMemoryError`, once, when it turns out to be large."""
        size = self.size
        self.size = size + len(part)
        if self._room is not None:
            self._room[size : self.size] = part
            return
        self._parts.append(part)
        if self.size > LARGE_BODY_BYTES:
            if BodyMapping.in_use + self._most > self._bound:
                raise BodyMemoryError
            self._room, at = allocate(self._most), 0
            for one in self._parts:
                self._room[at : at + len(one)] = one
                at += len(one)
            self._parts.clear()

    def whole(self) -> bytes | memoryview:
        """Once: it is not kept here."""
        if self._room is not None:
            room, self._room = self._room, None
            return room[: self.size]
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)
