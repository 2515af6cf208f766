"""A device's commands in order: what needs its memory waits for what is giving memory back."""

from collections import deque
from collections.abc import Callable

Giver = int | tuple[str, int]  # a sandbox that ends, or something else that a sandbox does


class Lane:
    def __init__(self) -> None:
        self._ending: set[Giver] = set()
        self._waiting: deque[Callable[[], None]] = deque()

    def ending(self, giver: Giver) -> None:
        self._ending.add(giver)

    def ended(self, giver: Giver) -> None:
        self._ending.discard(giver)
        while self._waiting and not self._ending:
            self._waiting.popleft()()

    def do(self, command: Callable[[], None]) -> None:
        """Now, or when nothing is ending any more."""
        if self._ending:
            self._waiting.append(command)
        else:
            command()
