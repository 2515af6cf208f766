"""Outputs that stay on the device for later calls, and the thread that writes them to memory of the server.

An output that is not written yet is never removed. Of the others the least recently used go when there is no room.
"""

import fcntl
import os
from collections import OrderedDict
from queue import SimpleQueue
from threading import Lock, Thread
from typing import NamedTuple

from aliquot.kernels.backends.base import DeviceMemory, KernelBackend, Region
from aliquot.runtime.units import MIB

MAX_KEPT_BYTES = 64 * MIB


class KeptOutput(NamedTuple):
    """An output on the device, and the form of graph whose backend it belongs to."""

    form: str
    backend: KernelBackend
    memory: DeviceMemory
    size_bytes: int


class OutputCache:
    """Outputs that stay, by the token that the server gave to each version. The order is that of their last use."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, KeptOutput] = OrderedDict()
        self._unwritten: set[str] = set()
        self._lock = Lock()  # the writer is another thread

    def find(self, token: str, form: str) -> Region | None:
        """Return where an output is, or None if it is not on the device or belongs to another form's backend."""
        with self._lock:
            found = self._kept.get(token)
            if found is None or found.form != form:
                return None
            self._kept.move_to_end(token)
            return Region(found.memory, 0, found.size_bytes)

    def add(self, token: str, output: KeptOutput) -> None:
        """Keep an output. It is not removed before `written`."""
        with self._lock:
            self._kept[token] = output
            self._unwritten.add(token)
            self._make_room()

    def written(self, token: str) -> None:
        with self._lock:
            self._unwritten.discard(token)
            self._make_room()

    def _make_room(self) -> None:
        used = sum(output.size_bytes for output in self._kept.values())
        for token in [token for token in self._kept if token not in self._unwritten]:
            if used <= self._max_bytes:
                break
            output = self._kept.pop(token)
            output.backend.free(output.memory)
            used -= output.size_bytes


class _Write(NamedTuple):
    token: str
    output: KeptOutput
    fd: int
    done: int


class OutputWriter:
    """Writes outputs behind the calls that made them, in a thread of its own."""

    def __init__(self, cache: OutputCache) -> None:
        self._cache = cache
        self._queue: SimpleQueue[_Write] = SimpleQueue()
        self._thread: Thread | None = None

    def write(self, token: str, output: KeptOutput, fd: int, done: int) -> None:
        """Fill the memory `fd` later, seal it, and write a byte to `done`. Both are closed then."""
        if self._thread is None:
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()
        self._queue.put(_Write(token, output, fd, done))

    def _run(self) -> None:
        queues: dict[str, KernelBackend] = {}
        while True:
            token, output, fd, done = self._queue.get()
            if output.form not in queues:
                queues[output.form] = output.backend.with_own_queue()
            try:
                data = queues[output.form].read(Region(output.memory, 0, output.size_bytes))
                write_all(fd, data)
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)  # tells everybody that it is whole
                os.write(done, b"1")
            finally:
                os.close(fd)
                os.close(done)
                self._cache.written(token)


def write_all(fd: int, data: bytes) -> None:
    """Write the data to the beginning of a file."""
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], done)
