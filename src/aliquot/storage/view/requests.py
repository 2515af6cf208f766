"""Receive the requests of one FUSE connection and answer each once, at once or when its future is done."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import structlog

from aliquot.storage.errors import StorageError
from aliquot.storage.view import wire
from aliquot.storage.view.events import PostWork

log = structlog.get_logger("aliquot.view")

# No request; a signal; the request was withdrawn before it was read.
_NO_REQUEST = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOENT})


class UnmountedError(Exception):
    """The view is no longer mounted."""


class FuseDevice:
    """A descriptor of `/dev/fuse`. Used on the views' thread only, because the number of a closed one is reused."""

    def __init__(self, device: int) -> None:
        os.set_blocking(device, False)
        self.device = device

    def receive(self) -> tuple[int, int, int, bytes] | None:
        """Return operation, id, inode and body of the next request, or None. Raises `UnmountedError`."""
        try:
            data = os.read(self.device, wire.MAX_REQUEST_BYTES)
        except OSError as error:
            if error.errno in _NO_REQUEST:
                return None
            raise UnmountedError from error
        _, operation, unique, inode, *_ = wire.REQUEST.unpack_from(data)
        return operation, unique, inode, data[wire.REQUEST.size :]

    def send(self, *answer: bytes) -> bool:
        """Send an answer. Return False if the kernel refuses it because the reader no longer waits."""
        try:
            os.writev(self.device, answer)
        except OSError:
            return False
        return True

    def close(self) -> None:
        os.close(self.device)


class ViewRequests:
    """The requests of one view, those that wait included. Used on the views' thread only."""

    def __init__(self, device: FuseDevice, post: PostWork) -> None:
        self.device = device
        self._post = post
        self._waiting: dict[int, Future[Any]] = {}

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._waiting)

    def answer(self, unique: int, body: bytes = b"") -> bool:
        """Answer a request. Return False if the reader no longer waits."""
        return self.device.send(*wire.answer(unique, body))

    def refuse(self, unique: int, code: int) -> None:
        self.device.send(wire.refusal(unique, code))

    def wait(
        self, unique: int, future: Future[Any], then: Callable[[], None], unwanted: Callable[[], None] | None = None
    ) -> None:
        """Call `then` on the views' thread when the future is done, or `unwanted` if the request was interrupted."""
        self._waiting[unique] = future

        def done() -> None:
            if self._waiting.pop(unique, None) is None:
                if unwanted is not None:
                    unwanted()
                return
            try:
                then()
            except StorageError as error:
                self.refuse(unique, error.errno)
            except Exception:
                log.exception("a view's answer failed")
                self.refuse(unique, errno.EIO)

        if future.done():
            done()
        else:
            future.add_done_callback(lambda _: self._post(done))

    def interrupt(self, unique: int) -> None:
        """Answer a waiting request whose reader got a signal. The kernel releases the reader only then."""
        waiting = self._waiting.pop(unique, None)
        if waiting is not None:  # else it was answered already
            waiting.cancel()
            self.refuse(unique, errno.EINTR)

    def close(self) -> None:
        for waiting in list(self._waiting.values()):
            waiting.cancel()
        self._waiting.clear()
        self.device.close()
