"""Datasets and volumes in sandboxes: the mounts through which a sandbox sees them, and who answers the kernel."""

import os
import socket
import subprocess
import sys
from typing import Protocol

from aliquot.live.node.base import Launch
from aliquot.runtime import view_mount
from aliquot.runtime.mounts import DATASETS, VOLUMES

NO_VIEWS = "This machine cannot show datasets or volumes to functions: `aliquot doctor` says why, and what would help."
_MOUNT_TIMEOUT_S = 5


class ViewProvider(Protocol):
    """Shows datasets, or volumes, to sandboxes: the storage agent's client."""

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        """Answer the kernel's requests of a sandbox on `device`, a descriptor of `/dev/fuse`.

        The descriptor now belongs to this object. Until requests are answered, the sandbox's programs wait.
        """

    def close(self, sandbox: int) -> None:
        """Stop answering for a sandbox, if it was opened."""


class NoViews:
    """Shows nothing: every access in a sandbox fails at once."""

    def open(self, sandbox: int, launch: Launch, device: int) -> None:
        os.close(device)

    def close(self, sandbox: int) -> None: ...


class SandboxViews:
    """The datasets and the volumes of sandboxes, by the place where they are mounted."""

    def __init__(self, datasets: ViewProvider | None = None, volumes: ViewProvider | None = None) -> None:
        self._providers: dict[str, ViewProvider] = {DATASETS: datasets or NoViews(), VOLUMES: volumes or NoViews()}

    def open(self, sandbox: int, launch: Launch, devices: dict[str, int]) -> None:
        """Answer the requests of a sandbox on these descriptors, by mount point."""
        for place, device in devices.items():
            self._providers[place].open(sandbox, launch, device)

    def close(self, sandbox: int, launch: Launch) -> None:
        """Stop answering for a sandbox that has ended."""
        for place, names in ((DATASETS, launch.datasets), (VOLUMES, launch.volumes)):
            if names:
                self._providers[place].close(sandbox)


class ViewMounts:
    """Makes the mounts, directly as root or else through a helper process, which starts with the first mount."""

    def __init__(self) -> None:
        self._maker: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket

    def make(self, *, writable: bool = False) -> tuple[int, int]:
        """Return descriptors of the FUSE device and of the mount. The caller closes both. Raises `OSError`."""
        if os.geteuid() == 0:
            return view_mount.make(writable=writable)
        if self._maker is None or self._maker.poll() is not None:
            self._start()
        return view_mount.ask(self._sock, writable=writable)

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
