"""Makes the mounts through which sandboxes see their datasets: FUSE, answered by another process on a descriptor.

A mount is made where it can be made, and is nowhere at first: its descriptor travels to the sandbox, which puts it into
its own mount namespace. So nothing is ever mounted on the machine, and the mount is gone when the sandbox is.

The kernel wants `/dev/fuse` opened in the user namespace in which the mount is made. A root server makes its mounts
itself. Another one has this file run as a program, `python -I view_mount.py FD`, which makes them in a user namespace
of its own: each byte that is sent on the socket FD is answered by both descriptors, or by a text that says why not.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING or __name__ != "__main__":
    from . import linux, walls
    from .units import MIB
else:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from runtime import linux, walls
    from runtime.units import MIB

DEVICE = "/dev/fuse"
MOST_READ = MIB


def make() -> tuple[int, int]:
    """A connection: the end on which the kernel asks, and the mount. Raises `OSError`."""
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise OSError(error.errno, f"{DEVICE}: {error.strerror}") from error
    try:
        options = {
            "source": "aliquot",
            "fd": str(device),
            "rootmode": "40555",
            "user_id": str(os.getuid()),
            "group_id": str(os.getgid()),
            "max_read": str(MOST_READ),
            "default_permissions": None,
            "ro": None,
        }
        if os.getuid() == 0:
            options["allow_other"] = None  # sandboxes are other users; otherwise they are this one
        return device, linux.detached_mount("fuse", options)
    except OSError:
        os.close(device)
        raise


def serve(sock: socket.socket) -> None:
    """Until the server hangs up."""
    while sock.recv(1):
        try:
            fds = make()
        except OSError as error:
            sock.send(str(error.strerror or error).encode())
            continue
        socket.send_fds(sock, [b"+"], fds)
        for fd in fds:
            os.close(fd)


def serve_apart(sock: socket.socket) -> None:
    """The same in a user namespace of its own, where the mounter needs no privileges on the machine."""
    linux.die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    mine = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    walls.map_own_user(*mine)
    serve(sock)


def ask(sock: socket.socket) -> tuple[int, int]:
    """The other side: have one made. Raises `OSError`."""
    sock.send(b"?")
    said, fds, _, _ = socket.recv_fds(sock, 1024, 2)
    if len(fds) != 2:  # noqa: PLR2004 - the two
        raise OSError(0, f"a view could not be mounted: {said.decode(errors='replace') or 'its maker has ended'}")
    return fds[0], fds[1]


if __name__ == "__main__":
    serve_apart(socket.socket(fileno=int(sys.argv[1])))
