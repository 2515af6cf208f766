"""Memory of a fixed size that a sandbox fills and the server reads: an output that becomes an object."""

import contextlib
import fcntl
import os
import select
from collections.abc import Iterator

from aliquot.core.units import MIB

_READ_BYTES = MIB


class OutputMemory:
    """A memory file. Its size is sealed, so that a sandbox can neither make it grow nor shrink.

    One that is written later has a pipe. Its reading end `done` becomes readable when the executor has written and
    sealed the memory, and also when the executor ends before that.
    """

    __slots__ = ("_token", "_writing_end", "done", "fd", "is_given", "size")

    def __init__(self, size: int, token: str = "") -> None:
        """Make the file. With a token it is written later, and stays on the device under it. Raises `OSError`."""
        self.size = size
        self.is_given = False  # to an executor; one of another node gets none
        self._token = token
        self.done = self._writing_end = -1
        self.fd = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        last = 0 if token else fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | last)
        if token:
            self.done, self._writing_end = os.pipe()

    @property
    def token(self) -> str:
        """The name under which the output stays on the device, or nothing."""
        return self._token

    def give(self) -> list[int]:
        """Return the descriptors for the executor that fills the memory. The caller closes them."""
        self.is_given = True
        fds = [os.dup(self.fd)]
        if self._writing_end >= 0:
            fds.append(self._writing_end)
            self._writing_end = -1
        return fds

    def share(self) -> list[int]:
        """Return the descriptors for an executor that waits until the memory is written. The caller closes them."""
        return [os.dup(self.fd), os.dup(self.done)]

    @property
    def is_settled(self) -> bool:
        """True when the memory is written, or never will be."""
        return bool(select.select([self.done], [], [], 0)[0]) if self._token else True

    @property
    def is_written(self) -> bool:
        """True when the executor has sealed what it wrote."""
        return bool(fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE)

    def pieces(self) -> Iterator[bytes]:
        """Read the content."""
        for start in range(0, self.size, _READ_BYTES):
            yield os.pread(self.fd, min(_READ_BYTES, self.size - start), start)

    def __del__(self) -> None:
        for fd in (getattr(self, "fd", -1), getattr(self, "done", -1), getattr(self, "_writing_end", -1)):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
