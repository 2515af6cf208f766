"""Readers on the output pipes of a run that takes long, before a full pipe could block it."""

import asyncio
from collections.abc import Callable


class OutputReaders:
    """Reads both streams of a sandbox while they are `active`."""

    __slots__ = ("_fds", "_loop", "_read", "_reading")

    def __init__(self, fds: tuple[int, int], read: Callable[[int], bool], loop: asyncio.AbstractEventLoop) -> None:
        """`read` reads some output of stream 0 or 1, and returns False at its end."""
        self._fds = fds
        self._read = read
        self._loop = loop
        self._reading = [False, False]

    @property
    def active(self) -> bool:
        return self._reading[0] or self._reading[1]

    def start(self) -> None:
        for stream in (0, 1):
            if not self._reading[stream]:
                self._reading[stream] = True
                self._loop.add_reader(self._fds[stream], self._on_readable, stream)

    def stop(self) -> None:
        for stream in (0, 1):
            self._stop(stream)

    def _on_readable(self, stream: int) -> None:
        if not self._read(stream):
            self._stop(stream)

    def _stop(self, stream: int) -> None:
        if self._reading[stream]:
            self._loop.remove_reader(self._fds[stream])
            self._reading[stream] = False
