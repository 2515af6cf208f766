"""Tickets as the cache gives them out: delivered once, and whoever cancels is counted out."""

from collections.abc import Callable
from typing import Any, TypeVar

from aliquot.storage.cache.base import TransferFuture, Urgency
from aliquot.storage.records import FileKey

T = TypeVar("T")


class Claim(TransferFuture[T]):
    """`left` is called when the caller cancels, `promoted` when it turns more urgent; from the caller's thread."""

    def __init__(
        self,
        urgency: Urgency,
        key: FileKey | None = None,
        left: Callable[["Claim[Any]"], None] | None = None,
        promoted: Callable[["Claim[Any]"], None] | None = None,
    ) -> None:
        super().__init__()
        self.urgency = urgency
        self.key = key
        self._moved: Callable[[], int] | None = None
        self._moved_before = 0
        self._left = left
        self._promoted = promoted

    def watch(self, moved: Callable[[], int]) -> None:
        """`moved` tells how much has come over the link for the file by now."""
        self._moved = moved
        self._moved_before = moved()

    @property
    def moved_bytes(self) -> int:
        return self._moved() - self._moved_before if self._moved is not None else 0

    def cancel(self) -> bool:
        cancelled = super().cancel()
        left, self._left = self._left, None
        if cancelled and left is not None:
            left(self)
        return cancelled

    def promote(self, urgency: Urgency = Urgency.DEMAND) -> None:
        if urgency < self.urgency:
            self.urgency = urgency
            if self._promoted is not None:
                self._promoted(self)

    def deliver(self, value: T) -> bool:
        """False: whoever asked has gone, and the value is the caller's to give back."""
        if not self.set_running_or_notify_cancel():
            return False
        self.set_result(value)
        return True

    def fail(self, error: Exception) -> None:
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


def delivered(value: T, urgency: Urgency = Urgency.DEMAND) -> Claim[T]:
    """A ticket for what is there already."""
    claim: Claim[T] = Claim(urgency)
    claim.set_result(value)
    return claim


def refused(error: Exception, urgency: Urgency = Urgency.DEMAND) -> "Claim[T]":
    claim: Claim[T] = Claim(urgency)
    claim.set_exception(error)
    return claim
