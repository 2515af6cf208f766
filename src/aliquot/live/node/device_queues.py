"""Queues per device: commands that need device memory wait while other sandboxes release theirs."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from aliquot.core.places import Place, place_text
from aliquot.live.node.base import Status
from aliquot.live.node.states import NOT_RELEASED, StartError

RELEASE_TIMEOUT_S = 60  # for sandboxes that were stopped to make space for another
Releaser = int | tuple[str, int]  # a sandbox that ends, or a swap with the number of its sandbox


class DeviceQueue:
    """The commands that wait for the memory of one device."""

    def __init__(self) -> None:
        self._releasing: set[Releaser] = set()
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_releasing(self) -> bool:
        return bool(self._releasing)

    def begin_release(self, releaser: Releaser) -> None:
        self._releasing.add(releaser)

    def end_release(self, releaser: Releaser) -> None:
        self._releasing.discard(releaser)
        while self._waiting and not self._releasing:
            self._waiting.popleft()()

    def run(self, command: Callable[[], None]) -> None:
        """Run the command as soon as no memory is being released, which may be now."""
        if self._releasing:
            self._waiting.append(command)
        else:
            command()


class DeviceQueues:
    """The queues of all devices. A place is one device, or several that a sandbox holds together."""

    def __init__(self, devices: Iterable[str]) -> None:
        self._queues = {device: DeviceQueue() for device in devices}

    def begin_release(self, place: Place, releaser: Releaser) -> None:
        for device in place:
            self._queues[device].begin_release(releaser)

    def end_release(self, place: Place, releaser: Releaser) -> None:
        for device in place:
            self._queues[device].end_release(releaser)

    def run(self, place: Place, command: Callable[[], None]) -> None:
        """Run the command as soon as no memory is being released on any device of the place."""
        first, *others = place
        for device in others:
            command = partial(self._queues[device].run, command)
        self._queues[first].run(command)

    async def wait(self, place: Place) -> None:
        """Wait until no memory is being released on any device of the place. Raises `StartError` if that never ends."""
        if any(self._queues[device].is_releasing for device in place):
            released = asyncio.Event()
            self.run(place, released.set)
            try:
                await asyncio.wait_for(released.wait(), RELEASE_TIMEOUT_S)
            except TimeoutError:
                text = NOT_RELEASED.format(place_text(place), RELEASE_TIMEOUT_S)
                raise StartError(Status.INTERNAL_ERROR, text) from None
