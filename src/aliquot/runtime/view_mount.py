"""Make the FUSE mounts through which sandboxes see datasets and volumes. Another process answers on a descriptor.

A mount is not attached when it is made. Its descriptor is sent to the sandbox, which attaches it in its own mount
namespace. So nothing is mounted on the machine itself, and the mount ends with the sandbox.

The kernel requires that `/dev/fuse` is opened in the user namespace in which the mount is made. A server that runs as
root makes its mounts itself. Any other server runs this file as a program, `python -I view_mount.py FD`, which makes
them in its own user namespace. Each byte that is sent to the socket FD, `r` or `w`, is answered with two descriptors,
or with an error text.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING or __name__ != "__main__":
    from . import isolation, linux
    from .units import MIB
else:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from runtime import isolation, linux
    from runtime.units import MIB

DEVICE = "/dev/fuse"
MAX_READ_BYTES = MIB
_READ_ONLY, _WRITABLE = b"r", b"w"  # the requests to the process


def make(*, writable: bool = False) -> tuple[int, int]:
    """Return the descriptor on which the kernel sends requests, and that of the mount. Raises `OSError`.

    A writable mount is one of volumes. The process that answers decides who may do what.
    """
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise OSError(error.errno, f"{DEVICE}: {error.strerror}") from error
    try:
        options: dict[str, str | None] = {
            "source": "aliquot",
            "fd": str(device),
            "rootmode": "40555",
            "user_id": str(os.getuid()),
            "group_id": str(os.getgid()),
            "max_read": str(MAX_READ_BYTES),
        }
        if not writable:
            options |= {"default_permissions": None, "ro": None}
        if os.getuid() == 0:
            options["allow_other"] = None  # sandboxes of a root server run as other users
        return device, linux.detached_mount("fuse", options, writable=writable)
    except OSError:
        os.close(device)
        raise


def serve(sock: socket.socket) -> None:
    """Make a mount for each request until the server closes the socket."""
    while asked := sock.recv(1):
        try:
            fds = make(writable=asked == _WRITABLE)
        except OSError as error:
            sock.send(str(error.strerror or error).encode())
            continue
        socket.send_fds(sock, [b"+"], fds)
        for fd in fds:
            os.close(fd)


def serve_in_namespace(sock: socket.socket) -> None:
    """Serve in a new user namespace, where mounting needs no privileges on the machine."""
    linux.die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    mine = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    isolation.map_own_user(*mine)
    serve(sock)


def ask(sock: socket.socket, *, writable: bool = False) -> tuple[int, int]:
    """Request a mount from the process at the other end. Raises `OSError`."""
    sock.send(_WRITABLE if writable else _READ_ONLY)
    said, fds, _, _ = socket.recv_fds(sock, 1024, 2)
    if len(fds) != 2:  # noqa: PLR2004 - the two
        raise OSError(
            0, f"a view could not be mounted: {said.decode(errors='replace') or 'the mounting process has ended'}"
        )
    return fds[0], fds[1]


if __name__ == "__main__":
    serve_in_namespace(socket.socket(fileno=int(sys.argv[1])))
