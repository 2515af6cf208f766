"""A descriptor of `/dev/fuse`, as the one who answers holds it."""

import errno
import os

from aliquot.storage.view import wire

# Nothing there; a signal; the request was taken back before it was read.
_NOTHING = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOENT})


class UnmountedError(Exception):
    """The mount is no more."""


class FuseDevice:
    """Used on the views' thread alone: another connection may get the number of a closed descriptor."""

    def __init__(self, device: int) -> None:
        os.set_blocking(device, False)
        self.device = device

    def receive(self) -> tuple[int, int, int, bytes] | None:
        """Operation, unique, inode and body of the next request; None when there is none right now."""
        try:
            data = os.read(self.device, wire.REQUEST_BYTES)
        except OSError as error:
            if error.errno in _NOTHING:
                return None
            raise UnmountedError from error
        _, operation, unique, inode, *_ = wire.REQUEST.unpack_from(data)
        return operation, unique, inode, data[wire.REQUEST.size :]

    def send(self, *answer: bytes) -> bool:
        """Whether the kernel took it; it does not when whoever asked has gone."""
        try:
            os.writev(self.device, answer)
        except OSError:
            return False
        return True

    def close(self) -> None:
        os.close(self.device)
