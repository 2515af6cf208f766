"""Look up what datasets contain: one lookup per dataset at a time, each in its own thread.

An origin that hangs blocks its own thread only. Concurrent callers share the running lookup.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class DatasetLookups(Generic[T]):
    """Runs `look_up`, which may wait for an origin, in threads. A future gets its result or error. Thread-safe."""

    def __init__(self, look_up: Callable[[str], T]) -> None:
        self._look_up = look_up
        self._lock = threading.Lock()
        self._running: dict[str, Future[T]] = {}

    def begin(self, name: str) -> Future[T]:
        """Start a lookup, or return the one already running."""
        with self._lock:
            known = self._running.get(name)
            if known is not None:
                return known
            future = self._running[name] = Future()
        threading.Thread(target=self._work, args=(name, future), name="dataset lookup", daemon=True).start()
        return future

    def forget(self, name: str) -> None:
        """Detach the running lookup, because the dataset was replaced. The next caller starts a new one."""
        with self._lock:
            self._running.pop(name, None)

    def _work(self, name: str, future: Future[T]) -> None:
        try:
            found = self._look_up(name)
        except BaseException as error:  # noqa: BLE001 - the future carries it
            self._finish(name, future)
            future.set_exception(error)
        else:
            self._finish(name, future)
            future.set_result(found)

    def _finish(self, name: str, future: Future[T]) -> None:
        with self._lock:
            if self._running.get(name) is future:
                del self._running[name]
