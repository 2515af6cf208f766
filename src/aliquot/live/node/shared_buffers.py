"""Shared buffers: memory in which sandboxes hand large values to each other, and the numbers that name them.

The memory has no name, only descriptors: when the last is closed, by whoever holds it or by the kernel when a process
ends, the memory is gone. Nothing needs to be counted or cleaned up, whatever is killed. Pages belong to the sandbox
that wrote them and count as its memory; who takes a shared buffer pays for what it changes of it.
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
            self.fd = os.memfd_create(f"aliquot-buffer-{os.getpid()}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, size)
        except OSError as error:
            raise SharedBufferError(f"a shared buffer of {size} bytes cannot be made ({error.strerror})") from error
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
            raise SharedBufferError(f"the shared buffer is still being written to ({error.strerror})") from error
        # What was never written has cost nobody anything, and would cost whoever reads it.
        if os.fstat(self.fd).st_blocks * _BLOCK < self.size:
            raise SharedBufferError("the shared buffer has not been written to its end")

    def inlined(self, body: bytes | memoryview) -> bytes | memoryview:
        """The envelope `body` with what is in here behind it. Only of one that may be kept."""
        with mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ) as memory, memoryview(memory) as view:
            whole = values.inline_buffers(body, view)
        return memoryview(whole) if len(whole) > LARGE_BODY_BYTES else whole


class SandboxBuffers:
    """One sandbox's shared buffers, each by a number that means something here alone."""

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
            raise SharedBufferError(f"a shared buffer of {size} bytes cannot be made")
        if len(self._open) + len(self._ready) >= _MOST:
            raise SharedBufferError(f"{_MOST} shared buffers are under way already")
        if SharedBuffer.in_use + size > self._bound:
            raise SharedBufferError(
                f"all shared buffers together may have {self._bound} bytes, and {SharedBuffer.in_use} are in use"
            )
        number = self._next()
        buffer = self._open[number] = SharedBuffer(size, self._max_kept)
        return number, buffer

    def seal(self, number: int) -> None:
        buffer = self._open.get(number)
        if buffer is None:
            raise SharedBufferError(f"there is no shared buffer {number} to close")
        buffer.seal()
        self._ready[number] = self._open.pop(number)

    def drop(self, number: int) -> None:
        self._open.pop(number, None)
        self._ready.pop(number, None)

    def hand_on(self, number: int, body: bytes | memoryview) -> SharedBuffer:
        """One that this sandbox has made, with the buffers of that envelope; once. Raises `SharedBufferError`."""
        buffer = self._ready.pop(number, None)
        if buffer is None:
            raise SharedBufferError(f"there is no shared buffer {number}")
        if not values.is_envelope(body) or values.layout(values.open_envelope(body)[1])[1] != buffer.size:
            raise SharedBufferError(f"shared buffer {number} is not what the body says")
        return buffer

    def put(self, buffer: Held) -> int:
        """For this sandbox, which takes it by its number."""
        number = self._next()
        if not self.closed:  # otherwise nobody will take it
            while len(self._arrived) >= _MOST:  # who has not come for it by now will not
                del self._arrived[next(iter(self._arrived))]
            self._arrived[number] = buffer
        return number

    def take(self, number: int) -> Held:
        buffer = self._arrived.pop(number, None)
        if buffer is None:
            raise SharedBufferError(f"there is no shared buffer {number} to take")
        return buffer

    def close(self) -> None:
        self.closed = True
        for buffers in (self._open, self._ready, self._arrived):
            buffers.clear()

    def _next(self) -> int:
        taken = {*self._open, *self._ready, *self._arrived}
        while True:
            self._last = self._last % _NUMBERS + 1
            if self._last not in taken:
                return self._last


class NodeBuffers:
    """The shared buffers of all sandboxes of a node, by each sandbox's token."""

    def __init__(self, bound: int, max_kept: int) -> None:
        self._bound = bound
        self._max_kept = max_kept
        self._by_token: dict[str, SandboxBuffers] = {}
        self.find = self._by_token.get

    def open(self) -> SandboxBuffers:
        buffers = SandboxBuffers(secrets.token_hex(16), self._bound, self._max_kept)
        self._by_token[buffers.token] = buffers
        return buffers

    def close(self, buffers: SandboxBuffers) -> None:
        self._by_token.pop(buffers.token, None)
        buffers.close()
