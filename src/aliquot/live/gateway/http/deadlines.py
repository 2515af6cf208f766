"""Many equal waits with one timer: the oldest ends first, so looking at the front is enough."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """`add` and `discard` cost a dictionary's insert and delete; the timer fires about once per `after_s`."""

    __slots__ = ("_after_s", "_expire", "_loop", "_timer", "_waiting")

    def __init__(self, after_s: float, expire: Callable[[T], None]) -> None:
        self._after_s = after_s
        self._expire = expire
        self._waiting: dict[T, float] = {}  # in order of their deadlines
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: T) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + self._after_s
        self._waiting[item] = deadline
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._look)

    def discard(self, item: T) -> None:
        self._waiting.pop(item, None)

    def close(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        assert self._loop is not None  # noqa: S101 - it was there when the timer was set
        while self._waiting:
            item, deadline = next(iter(self._waiting.items()))
            if deadline > self._loop.time():
                self._timer = self._loop.call_at(deadline, self._look)
                return
            del self._waiting[item]
            self._expire(item)
