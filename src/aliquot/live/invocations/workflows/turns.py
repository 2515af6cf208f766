"""Turns of owners on the event loop, for work that they could cause without end."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

MAX_TURN_S = 0.002  # after which the event loop does something else
Work = Callable[[], None]


class FairTurns:
    """Runs pieces of work one at a time, in turns of their owners, with half of the event loop's time at most."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Work]] = {}  # by owner, whose turn is next first
        self._scheduled = False

    def add(self, owner: str, work: Work) -> None:
        """Run the work when it is its owner's turn."""
        self._waiting.setdefault(owner, deque()).append(work)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def stop(self) -> None:
        """Forget all work that waits."""
        self._waiting.clear()

    def _run(self) -> None:
        begun_s = time.perf_counter()
        took_s = 0.0
        while self._waiting and took_s < MAX_TURN_S:
            owner = next(iter(self._waiting))
            queue = self._waiting.pop(owner)
            work = queue.popleft()
            if queue:
                self._waiting[owner] = queue  # after all others
            work()
            took_s = time.perf_counter() - begun_s
        self._scheduled = bool(self._waiting)
        if self._waiting:
            asyncio.get_running_loop().call_later(took_s, self._run)
