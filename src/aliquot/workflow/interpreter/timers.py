"""Timers of an execution. The shell keeps a single one, for the earliest time."""

from heapq import heappop, heappush
from typing import Generic, TypeVar

# the kinds of timers
EXECUTION_TIMEOUT, RESUME, STATE_TIMEOUT, HEARTBEAT, DELAY = "execution", "resume", "state", "heartbeat", "delay"

Target = TypeVar("Target")


class Timers(Generic[Target]):
    """Times in order, each with a target. A timer that was taken back is skipped when its turn comes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._targets: dict[int, Target] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, at: float, target: Target) -> int:
        self._number += 1
        self._targets[self._number] = target
        heappush(self._heap, (at, self._number))
        return self._number

    def remove(self, number: int) -> None:
        self._targets.pop(number, None)

    def earliest(self) -> float | None:
        """Return the time of the next timer."""
        while self._heap and self._heap[0][1] not in self._targets:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> tuple[int, Target] | None:
        """Remove and return the next timer that is due. Timers of equal time are due in the order they were set."""
        at = self.earliest()
        if at is None or at > now:
            return None
        number = heappop(self._heap)[1]
        return number, self._targets.pop(number)

    def clear(self) -> None:
        self._heap.clear()
        self._targets.clear()
