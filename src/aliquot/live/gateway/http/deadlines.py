"""Many waits of equal length that share one timer."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

STANDSTILL_S = 0.5  # a timer that is later than this was late because the server stood still
READ_FIRST_S = 0.01

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Calls `expire(item)` for every item that is not discarded within `after_s`.

    All waits are equally long, so the oldest item expires first and only the front needs a timer. `add` and `discard`
    cost one dictionary operation each. The timer fires about once per `after_s`. If it fires late because the server
    stood still, it is set once more, so that input which has arrived meanwhile is read first.
    """

    __slots__ = ("_after_s", "_expire", "_loop", "_postponed", "_timer", "_waiting")

    def __init__(self, after_s: float, expire: Callable[[T], None]) -> None:
        self._after_s = after_s
        self._expire = expire
        self._waiting: dict[T, float] = {}  # deadlines by item, earliest first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._postponed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: T) -> None:
        """Start a wait for this item."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + self._after_s
        self._waiting[item] = deadline
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire_due)

    def discard(self, item: T) -> None:
        """End the wait for this item, if there is one."""
        self._waiting.pop(item, None)

    def close(self) -> None:
        """End all waits without calling `expire`."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire_due(self) -> None:
        self._timer = None
        assert self._loop is not None  # noqa: S101 - `add` has set it before the timer
        now_s = self._loop.time()
        first_s = next(iter(self._waiting.values()), now_s)
        self._postponed = not self._postponed and now_s - first_s > STANDSTILL_S
        if self._postponed:
            self._timer = self._loop.call_later(READ_FIRST_S, self._expire_due)
            return
        while self._waiting:
            item, deadline = next(iter(self._waiting.items()))
            if deadline > self._loop.time():
                self._timer = self._loop.call_at(deadline, self._expire_due)
                return
            del self._waiting[item]
            self._expire(item)
