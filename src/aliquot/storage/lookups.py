"""What datasets have in them, asked of their origins: one question a dataset at a time, each in a thread of its own.

An origin that hangs keeps that thread and no other; whoever asks meanwhile waits for the same answer.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class DatasetLookups(Generic[T]):
    """`look` waits for an origin; what it raises, whoever asked is told."""

    def __init__(self, look: Callable[[str], T]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[T]] = {}

    def begin(self, name: str) -> Future[T]:
        """Of one that is under way, that one."""
        with self._lock:
            known = self._under_way.get(name)
            if known is not None:
                return known
            future = self._under_way[name] = Future()
        threading.Thread(target=self._work, args=(name, future), name="look", daemon=True).start()
        return future

    def forget(self, name: str) -> None:
        """It is another dataset now: whoever asks next must not wait for what is said of the old."""
        with self._lock:
            self._under_way.pop(name, None)

    def _work(self, name: str, future: Future[T]) -> None:
        try:
            looked = self._look(name)
        except BaseException as error:  # noqa: BLE001 - it is handed on
            self._over(name, future)
            future.set_exception(error)
        else:
            self._over(name, future)
            future.set_result(looked)

    def _over(self, name: str, future: Future[T]) -> None:
        with self._lock:
            if self._under_way.get(name) is future:
                del self._under_way[name]
