"""Memory for bodies that are too large to be copied, or to be checked on the event loop: one mapping per body.

A mapping can be passed to another process. Code uses a `memoryview` of it in place of `bytes`. The memory is freed
with the last view.
"""

import mmap
import os
from typing import Self

from aliquot.budgets import MappingBudget, Reservation
from aliquot.core.units import MIB

LARGE_BODY_BYTES = MIB  # above this size a body has a mapping of its own
# Space in front of every body, for a prefix. Pages that are not written take no memory.
PREFIX_BYTES = MIB
_PARTS_OF_MAPPING = 2  # its bytes and its descriptor


class BodyMapping(mmap.mmap):
    """A memory mapping with a descriptor, which is closed with the last view of it."""

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
        return made

    def __del__(self) -> None:
        os.close(self.fd)


def allocate(size: int, reserved: tuple[Reservation, ...] = ()) -> memoryview:
    """Return memory for a body of that size, which holds its parts of budgets. A smaller body is a slice of it."""
    return memoryview(BodyMapping(PREFIX_BYTES + size, reserved))[PREFIX_BYTES:]


def mapping_of(body: memoryview) -> BodyMapping | None:
    return body.obj if isinstance(body.obj, BodyMapping) else None


def release(body: memoryview) -> None:
    """Return the body's parts of budgets, because another budget counts it from now on."""
    mapping = mapping_of(body)
    if mapping is not None:
        mapping.reserved = ()


def put_before(prefix: bytes, body: memoryview, skip: int) -> memoryview:
    """Return the body from its byte `skip` on with the prefix before it, without a copy if the prefix fits."""
    mapping = mapping_of(body)
    end = PREFIX_BYTES + len(body)
    begin = PREFIX_BYTES + skip - len(prefix)
    if mapping is None or begin < 0:
        joined = allocate(len(prefix) + len(body) - skip, mapping.reserved if mapping is not None else ())
        joined[: len(prefix)] = prefix
        joined[len(prefix) :] = body[skip:]
        return joined
    whole = memoryview(mapping)
    whole[begin : begin + len(prefix)] = prefix
    return whole[begin:end]


class IncomingBody:
    """A body that arrives in parts, which are collected in a list or, above a mebibyte, in a mapping.

    A body that is complete with its first part needs no reservation. Others call `reserve` before the next part.
    """

    __slots__ = ("_budget", "_max_body_bytes", "_memory", "_parts", "_reserved", "_tenant", "size")

    def __init__(self, max_body_bytes: int, budget: MappingBudget) -> None:
        self._max_body_bytes = max_body_bytes
        self._budget = budget  # of all bodies together
        self._tenant = ""
        self._reserved: tuple[Reservation, ...] = ()
        self._parts: list[bytes] = []
        self._memory: memoryview | None = None
        self.size = 0

    def reserve(self, tenant: str, size: int) -> None:
        """Reserve a part of the tenant's memory for a body of this size. Raises `BudgetError`."""
        self._tenant = tenant
        bodies = self._budget
        self._reserved = (
            bodies.reserve(tenant, size) if size > LARGE_BODY_BYTES else (bodies.bytes.reserve(tenant, size),)
        )

    def add(self, part: bytes) -> None:
        """Add the next part. Raises `BudgetError` when the body is larger than its reservation and has no memory."""
        size = self.size
        self.size = size + len(part)
        if self._memory is not None:
            self._memory[size : self.size] = part
            return
        self._parts.append(part)
        if self.size > LARGE_BODY_BYTES:
            if len(self._reserved) < _PARTS_OF_MAPPING:  # its size was not known
                self._reserved = ()
                self.reserve(self._tenant, self._max_body_bytes)
            self._memory, at = allocate(self._max_body_bytes, self._reserved), 0
            for one in self._parts:
                self._memory[at : at + len(one)] = one
                at += len(one)
            self._parts.clear()

    def drop(self) -> None:
        """Free the memory of a body that will never be complete. Its owner may be in a reference cycle."""
        self._reserved, self._memory, self._parts = (), None, []

    def whole(self) -> bytes | memoryview:
        """Return the body, which is not kept here any longer. A large one holds its reservation."""
        self._reserved = ()
        if self._memory is not None:
            memory, self._memory = self._memory, None
            return memory[: self.size]
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)
