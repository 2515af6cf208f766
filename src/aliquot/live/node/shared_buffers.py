"""Shared buffers: memory in which large values go from sandbox to sandbox without a copy through the server.

The memory has no name, only descriptors. It is freed when the last descriptor is closed, by its holder or by the kernel
when a process ends. So no reference counts are kept, and a killed process leaves nothing to clean up. Pages are charged
to the sandbox that wrote them. A sandbox that takes a buffer pays only for the pages that it changes.

Buffers of a tenant, empty ones included, are limited by its part of a budget, and those of a sandbox by its memory
limit. A sandbox that has nothing to run has none.
"""

import fcntl
import mmap
import os
import secrets

from aliquot.budgets import BudgetError, MappingBudget
from aliquot.live.bodies.large import LARGE_BODY_BYTES
from aliquot.live.node.base import BufferHandle
from aliquot.runtime import values

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MAX_BUFFERS = 128  # per sandbox and direction: the server holds a descriptor for each
_MAX_NUMBER = 65_535
_BLOCK_BYTES = 512  # the unit of `st_blocks`


class SharedBufferError(Exception):
    """A shared buffer cannot be made, sealed or taken, and the text says why."""


class SharedBuffer:
    """One piece of shared memory, which is closed when the last reference to this object is gone."""

    __slots__ = ("_reserved", "fd", "max_kept", "size")

    def __init__(self, size: int, tenant: str, budget: MappingBudget, max_kept: int) -> None:
        """Allocate the memory. Values above `max_kept` bytes are not stored. Raises `SharedBufferError`."""
        self.max_kept = max_kept
        self.size, self.fd = size, -1
        try:
            self._reserved = budget.reserve(tenant, size)
            self.fd = os.memfd_create(f"aliquot-buffer-{os.getpid()}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, size)
        except BudgetError as error:
            raise SharedBufferError(str(error)) from error
        except OSError as error:
            raise SharedBufferError(
                f"a shared buffer of {size} bytes cannot be allocated ({error.strerror})"
            ) from error

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def seal(self) -> None:
        """Make the memory read-only for everyone. Raises `SharedBufferError` while it is still mapped for writing."""
        try:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as error:
            raise SharedBufferError(f"the shared buffer is still being written to ({error.strerror})") from error
        # Unwritten pages were not charged to the sender. The receiver would be charged when it reads them.
        if os.fstat(self.fd).st_blocks * _BLOCK_BYTES < self.size:
            raise SharedBufferError("the shared buffer has not been written to its end")

    def inlined(self, body: bytes | memoryview) -> bytes | memoryview:
        """Return the pickle's envelope `body` followed by the contents of this buffer."""
        with mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ) as memory, memoryview(memory) as view:
            whole = values.inline_buffers(body, view)
        return memoryview(whole) if len(whole) > LARGE_BODY_BYTES else whole


class SandboxBuffers:
    """The shared buffers of one sandbox. Their numbers are valid only here."""

    def __init__(self, token: str, tenant: str, memory_bytes: int, budget: MappingBudget, max_kept: int) -> None:
        """`memory_bytes` is the sandbox's memory limit, and `budget` is that of all sandboxes."""
        self.token = token
        self._tenant = tenant
        self._memory_bytes = memory_bytes
        self._budget = budget
        self._max_kept = max_kept
        self._last = 0
        self._open: dict[int, SharedBuffer] = {}  # the sandbox is writing them
        self._ready: dict[int, SharedBuffer] = {}  # sealed, and not yet handed on
        self._arrived: dict[int, BufferHandle] = {}  # from others, and not yet taken
        self._idle = False
        self.closed = False

    def begin_run(self) -> None:
        """Let the sandbox have buffers again."""
        self._idle = False

    def end_run(self) -> None:
        """Drop the buffers that the run has left behind. Until the next run the sandbox gets no others."""
        self._idle = True
        if self._open or self._ready or self._arrived:
            self._drop_all()

    def allocate(self, size: int) -> tuple[int, SharedBuffer]:
        """Return a new buffer for the sandbox to write, with its number. Raises `SharedBufferError`."""
        if size <= 0:
            raise SharedBufferError(f"a shared buffer of {size} bytes cannot be allocated")
        if self._idle:
            raise SharedBufferError("a shared buffer is for a running function, and none runs")
        if len(self._open) + len(self._ready) >= _MAX_BUFFERS:
            raise SharedBufferError(f"{_MAX_BUFFERS} shared buffers are open already")
        held = sum(buffer.size for buffers in (self._open, self._ready) for buffer in buffers.values())
        if held + size > self._memory_bytes:
            raise SharedBufferError(
                f"the shared buffers of a sandbox may have as many bytes as its memory limit, {self._memory_bytes}; "
                f"it holds {held} and asks for {size} more"
            )
        number = self._next()
        buffer = self._open[number] = SharedBuffer(size, self._tenant, self._budget, self._max_kept)
        return number, buffer

    def seal(self, number: int) -> None:
        """Seal a buffer that the sandbox has written. Raises `SharedBufferError`."""
        buffer = self._open.get(number)
        if buffer is None:
            raise SharedBufferError(f"there is no shared buffer {number} to close")
        buffer.seal()
        self._ready[number] = self._open.pop(number)

    def drop(self, number: int) -> None:
        self._open.pop(number, None)
        self._ready.pop(number, None)

    def hand_on(self, number: int, body: bytes | memoryview) -> SharedBuffer:
        """Remove and return a sealed buffer whose size fits the envelope `body`. Raises `SharedBufferError`."""
        buffer = self._ready.pop(number, None)
        if buffer is None:
            raise SharedBufferError(f"there is no shared buffer {number}")
        if not values.is_envelope(body) or values.layout(values.open_envelope(body)[1])[1] != buffer.size:
            raise SharedBufferError(f"the size of shared buffer {number} is not what the body says")
        return buffer

    def put(self, buffer: BufferHandle) -> int:
        """Add a buffer for this sandbox and return the number by which the sandbox takes it."""
        number = self._next()
        if not self.closed and not self._idle:
            while len(self._arrived) >= _MAX_BUFFERS:  # the oldest will not be taken any more
                del self._arrived[next(iter(self._arrived))]
            self._arrived[number] = buffer
        return number

    def take(self, number: int) -> BufferHandle:
        """Remove and return a buffer that was put here. Raises `SharedBufferError`."""
        buffer = self._arrived.pop(number, None)
        if buffer is None:
            raise SharedBufferError(f"there is no shared buffer {number} to take")
        return buffer

    def close(self) -> None:
        self.closed = True
        self._drop_all()

    def _drop_all(self) -> None:
        for buffers in (self._open, self._ready, self._arrived):
            buffers.clear()

    def _next(self) -> int:
        taken = {*self._open, *self._ready, *self._arrived}
        while True:
            self._last = self._last % _MAX_NUMBER + 1
            if self._last not in taken:
                return self._last


class NodeBuffers:
    """The shared buffers of all sandboxes of a node. A sandbox proves to the gateway by a token which are its own."""

    def __init__(self, budget: MappingBudget, max_kept: int, *, beside_gateway: bool = True) -> None:
        """Sandboxes get a token only if the gateway is in this process, where it finds their buffers."""
        self._budget = budget  # of all buffers together
        self._max_kept = max_kept
        self._beside_gateway = beside_gateway
        self._by_token: dict[str, SandboxBuffers] = {}
        self.find = self._by_token.get

    def open(self, tenant: str, memory_bytes: int) -> SandboxBuffers:
        """Make the set of buffers for a new sandbox with this memory limit."""
        token = secrets.token_hex(16) if self._beside_gateway else ""
        buffers = SandboxBuffers(token, tenant, memory_bytes, self._budget, self._max_kept)
        if token:
            self._by_token[token] = buffers
        return buffers

    def filled(self, tenant: str, content: bytes) -> SharedBuffer:
        """Return a sealed buffer with this content, which comes from another node. Raises `SharedBufferError`."""
        made = SharedBuffer(len(content), tenant, self._budget, self._max_kept)
        written = 0
        with memoryview(content) as view:
            while written < len(content):
                written += os.pwrite(made.fd, view[written:], written)
        made.seal()
        return made

    def close(self, buffers: SandboxBuffers) -> None:
        self._by_token.pop(buffers.token, None)
        buffers.close()
