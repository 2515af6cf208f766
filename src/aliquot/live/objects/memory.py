"""Memory of a fixed size that a sandbox fills and the server reads: an output that becomes an object."""

import fcntl
import os
from collections.abc import Iterator

from aliquot.core.units import MIB

_READ_BYTES = MIB


class OutputMemory:
    """A memory file. Its size is sealed, so that a sandbox cannot make it grow."""

    __slots__ = ("fd", "size")

    def __init__(self, size: int) -> None:
        """Make the file. Raises `OSError`."""
        self.size = size
        self.fd = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)

    def pieces(self) -> Iterator[bytes]:
        """Read the content."""
        for start in range(0, self.size, _READ_BYTES):
            yield os.pread(self.fd, min(_READ_BYTES, self.size - start), start)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)
