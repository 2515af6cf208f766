"""The error output of a zygote: a pipe of which the end is kept, in case the process fails.

The code that prints may be a tenant's, so neither a file nor the server's time may be used up. The pipe is read at a
bounded rate, and a process that prints faster waits.
"""

import asyncio
import contextlib
import os

from aliquot.core.units import KIB

MAX_KEPT_BYTES = 4 * KIB
MAX_READ_BYTES = 64 * KIB  # at once, which is also what a pipe holds
READ_PAUSE_S = 0.02


class ErrorOutput:
    """Reads what a process prints to its error output, and keeps the last of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the pipe. The process gets `write_end`, and `read` follows once it runs."""
        self._loop = loop
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._kept = b""
        self._is_open = True

    def read(self) -> None:
        """Begin to read. Only the process can write from now on."""
        os.close(self.write_end)
        self._loop.add_reader(self._read_end, self._readable)

    def _readable(self) -> None:
        self._loop.remove_reader(self._read_end)
        if self._take():
            self._loop.call_later(READ_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._read_end, self._readable)

    def _take(self) -> bool:
        """Read once. Return False when there is nothing more to come."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._read_end, MAX_READ_BYTES)
        self._kept = (self._kept + data)[-MAX_KEPT_BYTES:]
        return bool(data)

    def close(self) -> None:
        """Close the pipe, and keep what it still holds."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._read_end)
            self._take()
            os.close(self._read_end)

    def last_line(self) -> str:
        """Return the last line that was printed, or an empty text."""
        lines = self._kept.decode(errors="replace").replace("\0", "").strip().splitlines()
        return lines[-1] if lines else ""
