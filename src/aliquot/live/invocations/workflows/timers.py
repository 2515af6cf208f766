"""The timers of all executions: one heap, and one timer of the event loop for the earliest of them.

What a timer costs does not depend on how many others are set.
"""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush

MAX_SLEEP_S = 3600.0  # of the event loop's timer, because some loops refuse longer ones
MAX_WASTE = 1000  # entries of the heap that were replaced, before it is made anew


class TimerHeap:
    """Calls `due` with the name of each timer whose time has come. A name has at most one timer."""

    def __init__(self, clock: Callable[[], float], due: Callable[[str], None]) -> None:
        self._clock = clock
        self._due = due
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = float("inf")

    def __len__(self) -> int:
        return len(self._at)

    def set(self, name: str, at: float | None) -> None:
        """Set the timer of this name, or take it back."""
        if at is None:
            self._at.pop(name, None)
            return
        self._at[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._at) + MAX_WASTE:
            self._heap = [(time, name) for name, time in self._at.items()]
            heapify(self._heap)
        if at < self._wakes_at:
            self._sleep()

    def stop(self) -> None:
        """Report no more timers."""
        self._at.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _sleep(self) -> None:
        """Let the event loop wake this object at the earliest time."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        self._wakes_at = self._heap[0][0] if self._heap else float("inf")
        if self._heap:
            delay = min(MAX_SLEEP_S, max(0.0, self._wakes_at - self._clock()))
            self._handle = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._handle, self._wakes_at = None, float("inf")
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                self._due(name)
        self._sleep()
