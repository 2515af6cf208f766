"""Futures of the cache: results that arrive with a transfer."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from aliquot.storage.cache.records import Urgency

T = TypeVar("T")


def _no_urgency(_: Urgency) -> None:
    pass


class TransferFuture(Future[T]):
    """One caller's result of a transfer. When the last caller cancels, the transfer stops at its next chunk.

    A thread calls `result()`, a coroutine awaits `asyncio.wrap_future(future)`. It ends with a result, with a
    `StorageError` or `PathError`, or cancelled.
    """

    def __init__(
        self,
        *,
        cancelled: Callable[[], None] = lambda: None,
        promoted: Callable[[Urgency], None] = _no_urgency,
        moved_bytes: Callable[[], int] = int,
    ) -> None:
        """Take the callbacks for `cancel`, `promote` and `moved_bytes`. They run in the thread of the caller."""
        super().__init__()
        self._on_cancel: Callable[[], None] | None = cancelled
        self._on_promote = promoted
        self._moved_bytes = moved_bytes

    @property
    def moved_bytes(self) -> int:
        """Return how many bytes came over the link for the file since the request, even if it was cancelled."""
        return self._moved_bytes()

    def promote(self, urgency: Urgency = Urgency.DEMAND) -> None:
        """Make the request at least this urgent."""
        self._on_promote(urgency)

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        on_cancel, self._on_cancel = self._on_cancel, None
        if is_cancelled and on_cancel is not None:
            on_cancel()
        return is_cancelled

    def deliver(self, value: T) -> bool:
        """Set the result. Return False if the future was cancelled, so that the value is still the caller's."""
        if not self.set_running_or_notify_cancel():
            return False
        self.set_result(value)
        return True

    def fail(self, error: Exception) -> None:
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


def delivered(value: T) -> TransferFuture[T]:
    """Return a future that has its result already."""
    future: TransferFuture[T] = TransferFuture()
    future.set_result(value)
    return future


def refused(error: Exception) -> TransferFuture[T]:
    """Return a future that has failed already."""
    future: TransferFuture[T] = TransferFuture()
    future.set_exception(error)
    return future
