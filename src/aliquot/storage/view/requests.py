"""The requests of one connection: each is answered once, at once or when what it waits for is there."""

import errno
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import structlog

from aliquot.storage.errors import StorageError
from aliquot.storage.view import wire
from aliquot.storage.view.channel import FuseDevice
from aliquot.storage.view.events import PostWork

log = structlog.get_logger("aliquot.view")


class ViewRequests:
    def __init__(self, channel: FuseDevice, post: PostWork) -> None:
        self.channel = channel
        self._post = post
        self._waiting: dict[int, Future[Any]] = {}

    def __len__(self) -> int:
        """Those that wait."""
        return len(self._waiting)

    def answer(self, unique: int, body: bytes = b"") -> bool:
        """Whether it was taken: whoever asked may have gone."""
        return self.channel.send(*wire.answer(unique, body))

    def refuse(self, unique: int, code: int) -> None:
        self.channel.send(wire.refusal(unique, code))

    def wait(
        self, unique: int, future: Future[Any], then: Callable[[], None], unwanted: Callable[[], None] | None = None
    ) -> None:
        """`then`, on the views' thread, when it is done; `unwanted` if nobody waits for it any more."""
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
        """A signal has come to whoever waits, and the kernel lets it go only when it is answered."""
        waiting = self._waiting.pop(unique, None)
        if waiting is not None:  # or it has been answered
            waiting.cancel()
            self.refuse(unique, errno.EINTR)

    def close(self) -> None:
        for waiting in list(self._waiting.values()):
            waiting.cancel()
        self._waiting.clear()
        self.channel.close()
