"""Accept connections from listening sockets that several gateway processes share, so that each gets its part.

The kernel wakes all of them for a connection, and the first one gets it. A process that is awake would take most of a
burst, and keep them. So each process writes the number of its connections to shared memory, and one that has more than
another waits for a moment before it accepts the next.
"""

import asyncio
import mmap
import os
import socket
from collections.abc import Callable

import structlog

TURN_S = 0.002  # in which a process with fewer connections can accept one
RETRY_S = 0.1  # after an error, such as too many open descriptors
ENDED = 2**32 - 1  # the count of a process that does not run
_COUNT_BYTES = 4

_log = structlog.get_logger("aliquot.gateway")


class ConnectionCounts:
    """The number of connections of each gateway process, in memory that all of them share."""

    def __init__(self, fd: int, count: int) -> None:
        self.fd = fd
        self._counts = memoryview(mmap.mmap(fd, _COUNT_BYTES * count)).cast("I")

    @classmethod
    def create(cls, count: int) -> "ConnectionCounts":
        """Make the memory for this number of processes, of which none runs yet."""
        fd = os.memfd_create("aliquot-gateways")
        os.ftruncate(fd, _COUNT_BYTES * count)
        counts = cls(fd, count)
        for place in range(count):
            counts.set(place, ENDED)
        return counts

    def set(self, place: int, connections: int) -> None:
        self._counts[place] = connections

    def others_have_fewer(self, place: int) -> bool:
        """Return whether another process has fewer connections than the one at this place."""
        return min(self._counts) < self._counts[place]

    def close(self) -> None:
        os.close(self.fd)


class Acceptor:
    """Accepts connections in one process."""

    def __init__(
        self, listeners: list[socket.socket], is_my_turn: Callable[[], bool], put: Callable[[socket.socket], None]
    ) -> None:
        """`is_my_turn` says whether no other process has fewer connections. `put` gets each connection."""
        self._loop = asyncio.get_running_loop()
        self._listeners = listeners
        self._is_my_turn = is_my_turn
        self._put = put
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}
        for listener in listeners:
            listener.setblocking(False)
            self._loop.add_reader(listener.fileno(), self._readable, listener)

    def close(self) -> None:
        """Accept no more connections."""
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        for timer in self._timers.values():
            timer.cancel()

    def _readable(self, listener: socket.socket) -> None:
        """Accept one connection, or leave it to others for a moment."""
        if self._is_my_turn():
            self._accept(listener)
        else:
            self._pause(listener, TURN_S)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process has it
        except OSError as error:
            _log.warning("no connection can be accepted", error=str(error))
            self._pause(listener, RETRY_S)
            return
        self._put(connection)

    def _pause(self, listener: socket.socket, delay_s: float) -> None:
        self._loop.remove_reader(listener.fileno())
        self._timers[listener] = self._loop.call_later(delay_s, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        """Accept a connection that the others have left here."""
        del self._timers[listener]
        self._loop.add_reader(listener.fileno(), self._readable, listener)
        self._accept(listener)
