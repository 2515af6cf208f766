"""Has the mounts made through which sandboxes see their datasets: here, or as another user than root by a process."""

import os
import socket
import subprocess
import sys

from aliquot.runtime import view_mount

_PATIENCE_S = 5


class ViewMounts:
    """`make` takes a fraction of a millisecond; the first one without root, the start of a process."""

    def __init__(self) -> None:
        self._maker: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket

    def make(self) -> tuple[int, int]:
        """Where the kernel asks, and the mount: both are the caller's to close. Raises `OSError`."""
        if os.geteuid() == 0:
            return view_mount.make()
        if self._maker is None or self._maker.poll() is not None:
            self._start()
        return view_mount.ask(self._sock)

    def _start(self) -> None:
        self.close()
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.settimeout(_PATIENCE_S)
        with theirs:
            self._maker = subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-I", view_mount.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
            )

    def close(self) -> None:
        if self._maker is not None:
            self._sock.close()
            self._maker.kill()
            self._maker.wait()
            self._maker = None
