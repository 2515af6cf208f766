"""Who shows datasets to sandboxes: the node's side of it."""

import os
import socket
import subprocess
import sys
from typing import Protocol

from aliquot.live.node.base import Launch
from aliquot.runtime import view_mount

NO_VIEWS = "This machine cannot show datasets to functions: `aliquot doctor` says why, and what would help."


_MOUNT_TIMEOUT_S = 5


class DatasetViews(Protocol):
    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        """A sandbox has moved in. The kernel asks about its datasets on this descriptor of `/dev/fuse`, now yours.

        Until somebody answers there, whoever looks into the sandbox's datasets waits.
        """

    def close(self, sandbox: int) -> None:
        """It has gone; of one that was never told of, nothing."""


class NoDatasetViews:
    """Nobody does: whoever looks gets an error at once."""

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        os.close(device)

    def close(self, sandbox: int) -> None: ...


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
        self._sock.settimeout(_MOUNT_TIMEOUT_S)
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
