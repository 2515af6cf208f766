"""The sandbox's ends of the two pipes that carry its standard output and standard error to the server."""

from __future__ import annotations

import fcntl
import os
import sys
import termios

_MIN_COPY_FD = 100  # above the descriptors that functions open
_EMPTY = bytes(4)  # the C int that FIONREAD fills in


class OutputPipes:
    """Flushes the streams of a run, and finds out whether the server has anything to read.

    It checks the pipes, not the streams: a child process or a C extension writes to the descriptors themselves. The
    copies stay on the pipes when the function redirects or closes descriptors 1 and 2.
    """

    def __init__(self, fds: tuple[int, int] = (1, 2)) -> None:
        self._copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _MIN_COPY_FD) for fd in fds]

    def close(self) -> None:
        for fd in self._copies:
            os.close(fd)

    def flush(self) -> bool:
        """Write out what the streams have buffered. Return whether the pipes now hold output that is not read yet."""
        flush_streams()
        try:
            for fd in self._copies:
                if fcntl.ioctl(fd, termios.FIONREAD, _EMPTY) != _EMPTY:
                    return True
        except OSError:  # the function has closed the copy, so only the server can tell
            return True
        return False


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - the warm path
            stream.flush()
        except Exception:  # noqa: BLE001, S110 - the function may have closed or replaced it
            pass
