"""A device's commands in order: what needs its memory waits for what is giving memory back."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from aliquot.core.places import Place

Giver = int | tuple[str, int]  # a sandbox that ends, or something else that a sandbox does


class DeviceQueue:
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


class DeviceQueues:
    """Of all devices. `place` is one of them, or several that a sandbox holds together."""

    def __init__(self, devices: Iterable[str]) -> None:
        self._lanes = {device: DeviceQueue() for device in devices}

    def ending(self, place: Place, giver: Giver) -> None:
        for device in place:
            self._lanes[device].ending(giver)

    def ended(self, place: Place, giver: Giver) -> None:
        for device in place:
            self._lanes[device].ended(giver)

    def do(self, place: Place, command: Callable[[], None]) -> None:
        """When nothing is ending any more on any of them."""
        first, *others = place
        for device in others:
            command = partial(self._lanes[device].do, command)
        self._lanes[first].do(command)
