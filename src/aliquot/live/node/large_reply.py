"""A large reply of a sandbox on its way: received into the place where it stays."""

from aliquot.live.bodies.large import allocate
from aliquot.runtime.frames import REPLY


class LargeReply:
    __slots__ = ("_size", "buffer_number", "have", "status", "whole")

    def __init__(self, status: int, buffer_number: int, size: int, pickled: int, begun: bytes) -> None:
        self.status, self.buffer_number = status, buffer_number
        self._size = size
        self.whole = allocate(size + pickled)
        self.have = len(begun) - REPLY.size
        self.whole[: self.have] = begun[REPLY.size :]

    @property
    def room(self) -> memoryview:
        return self.whole[self.have :]

    @property
    def result(self) -> memoryview:
        return self.whole[: self._size]

    @property
    def pickled(self) -> memoryview | None:
        return self.whole[self._size :] or None
