"""Reads of the store in a thread, one at a time, in which owners take turns.

A page of large records takes many times as long as a single one. In one queue, an owner that lists its records all the
time would keep all others waiting. Here another owner waits for one read at most.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Read = Callable[[sqlite3.Connection], Any]


class FairReads:
    """The queue of reads, used on the event loop's thread, and the thread with its connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="aliquot-store-read")
        self._waiting: dict[str, deque[tuple[Read, asyncio.Future[Any]]]] = {}  # by owner, whose turn is next first
        self._busy = False

    async def run(self, owner: str, read: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `read` returns in the thread, when it is the owner's turn. Raises what `read` raises."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((read, future))
        if not self._busy:
            self._begin_next()
        return await future

    def _begin_next(self) -> None:
        while self._waiting:
            owner = next(iter(self._waiting))
            queue = self._waiting.pop(owner)
            read, future = queue.popleft()
            if queue:
                self._waiting[owner] = queue  # after all others
            if not future.done():  # nobody waits for a read that was cancelled
                self._busy = True
                begun = asyncio.get_running_loop().run_in_executor(self._thread, read, self._connection)
                begun.add_done_callback(partial(self._ended, future))
                return

    def _ended(self, future: "asyncio.Future[Any]", ended: "asyncio.Future[Any]") -> None:
        self._busy = False
        error = None if ended.cancelled() else ended.exception()
        if not future.done():
            if error is not None:
                future.set_exception(error)
            elif ended.cancelled():
                future.cancel()
            else:
                future.set_result(ended.result())
        self._begin_next()

    def close(self) -> None:
        """Wait for the read that runs, and close the connection."""
        self._thread.shutdown()
        self._connection.close()
