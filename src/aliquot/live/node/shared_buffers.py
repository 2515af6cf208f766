"""Parcels: large values on their way from sandbox to sandbox in shared memory, and each sandbox's desk for them.

The memory has no name, only descriptors: when the last is closed, by whoever holds it or by the kernel when a process
ends, the memory is gone. Nothing needs to be counted or cleaned up, whatever is killed. Pages belong to the sandbox
that wrote them and count as its memory; who takes a parcel pays for what it changes of it.
"""

import fcntl
import mmap
import os
import secrets
from typing import ClassVar

from aliquot.live.bodies.large import LARGE_BODY_BYTES
from aliquot.live.node.base import BufferHandle as Held
from aliquot.runtime import values

_SEALED = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MOST = 128  # of one sandbox at once, each way: the server holds a descriptor for each
_NUMBERS = 65_535
_BLOCK = 512  # of what `stat` counts


class SharedBufferError(Exception):
    """The text says why."""


class SharedBuffer:
    """Closed when nobody holds it any more."""

    in_use: ClassVar[int] = 0  # bytes of all together
    __slots__ = ("fd", "max_kept", "size")

    def __init__(self, size: int, max_kept: int) -> None:
        """`max_kept`: how large one may be that is put on disk. Raises `SharedBufferError`."""
        self.max_kept = max_kept
        self.size, self.fd = 0, -1
        try:
            self.fd = os.memfd_create(f"aliquot-parcel-{os.getpid()}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, size)
        except OSError as error:
            raise SharedBufferError(f"a parcel of {size} bytes cannot be made ({error.strerror})") from error
        self.size = size
        SharedBuffer.in_use += size

    def __del__(self) -> None:
        SharedBuffer.in_use -= self.size
        if self.fd >= 0:
            os.close(self.fd)

    def seal(self) -> None:
        """From now on nobody can write to it. Raises `SharedBufferError` while somebody still could."""
        try:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALED)
        except OSError as error:
            raise SharedBufferError(f"the parcel is still being written to ({error.strerror})") from error
        # What was never written has cost nobody anything, and would cost whoever reads it.
        if os.fstat(self.fd).st_blocks * _BLOCK < self.size:
            raise SharedBufferError("the parcel has not been written to its end")

    def inlined(self, body: bytes | memoryview) -> bytes | memoryview:
        """The envelope `body` with what is in here behind it. Only of one that may be kept."""
        with mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ) as memory, memoryview(memory) as view:
            whole = values.inline_buffers(body, view)
        return memoryview(whole) if len(whole) > LARGE_BODY_BYTES else whole


class SandboxBuffers:
    """One sandbox's parcels, each by a number that means something here alone."""

    def __init__(self, token: str, bound: int, max_kept: int) -> None:
        self.token = token
        self._bound = bound
        self._max_kept = max_kept
        self._last = 0
        self._open: dict[int, SharedBuffer] = {}  # being written
        self._ready: dict[int, SharedBuffer] = {}  # to be handed on
        self._arrived: dict[int, Held] = {}  # to be taken
        self.closed = False

    def room(self, size: int) -> tuple[int, SharedBuffer]:
        if size <= 0:
            raise SharedBufferError(f"a parcel of {size} bytes cannot be made")
        if len(self._open) + len(self._ready) >= _MOST:
            raise SharedBufferError(f"{_MOST} parcels are under way already")
        if SharedBuffer.in_use + size > self._bound:
            raise SharedBufferError(
                f"all parcels together may have {self._bound} bytes, and {SharedBuffer.in_use} are in use"
            )
        number = self._next()
        parcel = self._open[number] = SharedBuffer(size, self._max_kept)
        return number, parcel

    def seal(self, number: int) -> None:
        parcel = self._open.get(number)
        if parcel is None:
            raise SharedBufferError(f"there is no parcel {number} to close")
        parcel.seal()
        self._ready[number] = self._open.pop(number)

    def drop(self, number: int) -> None:
        self._open.pop(number, None)
        self._ready.pop(number, None)

    def hand_on(self, number: int, body: bytes | memoryview) -> SharedBuffer:
        """One that this sandbox has made, with the buffers of that envelope; once. Raises `SharedBufferError`."""
        parcel = self._ready.pop(number, None)
        if parcel is None:
            raise SharedBufferError(f"there is no parcel {number}")
        if not values.is_envelope(body) or values.layout(values.open_envelope(body)[1])[1] != parcel.size:
            raise SharedBufferError(f"parcel {number} is not what the body says")
        return parcel

    def put(self, parcel: Held) -> int:
        """For this sandbox, which takes it by its number."""
        number = self._next()
        if not self.closed:  # otherwise nobody will take it
            while len(self._arrived) >= _MOST:  # who has not come for it by now will not
                del self._arrived[next(iter(self._arrived))]
            self._arrived[number] = parcel
        return number

    def take(self, number: int) -> Held:
        parcel = self._arrived.pop(number, None)
        if parcel is None:
            raise SharedBufferError(f"there is no parcel {number} to take")
        return parcel

    def close(self) -> None:
        self.closed = True
        for parcels in (self._open, self._ready, self._arrived):
            parcels.clear()

    def _next(self) -> int:
        taken = {*self._open, *self._ready, *self._arrived}
        while True:
            self._last = self._last % _NUMBERS + 1
            if self._last not in taken:
                return self._last


class NodeBuffers:
    """All desks of a node. By its token a sandbox shows the gateway which one is its own."""

    def __init__(self, bound: int, max_kept: int) -> None:
        self._bound = bound
        self._max_kept = max_kept
        self._desks: dict[str, SandboxBuffers] = {}
        self.find = self._desks.get

    def open(self) -> SandboxBuffers:
        desk = SandboxBuffers(secrets.token_hex(16), self._bound, self._max_kept)
        self._desks[desk.token] = desk
        return desk

    def close(self, desk: SandboxBuffers) -> None:
        self._desks.pop(desk.token, None)
        desk.close()
