"""All views of a node: one thread answers them, and hands aside what would hold it up.

One thread, because what it answers takes microseconds (names, opens) and files that are whole are read by the kernel
alone; the figures are in decision 0022.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from aliquot.storage.cache import Cache
from aliquot.storage.view.channel import UnmountedError
from aliquot.storage.view.connection import ViewConnection
from aliquot.storage.view.contents import NodeContents
from aliquot.storage.view.events import OnViewEvent

log = structlog.get_logger("aliquot.view")

_MAX_EARLY_HIDDEN = 10_000  # sandboxes that something is hidden from before their views are here


class ViewServer:
    """Every method may be called from any thread and returns at once, but `stop`."""

    def __init__(self, cache: Cache, tell: OnViewEvent, *, passthrough: bool = True) -> None:
        """`passthrough`: the kernel reads whole files by itself, where it can and this process may say so."""
        self._passthrough = passthrough and os.geteuid() == 0
        self._cache = cache
        self._tell = tell
        self._names = NodeContents(cache, self._post)
        self._connections: dict[int, ViewConnection] = {}  # by descriptor
        self._hidden: dict[int, list[str]] = {}  # by sandbox, until its view is here
        self._posted: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waking = threading.Lock()
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._stopping = self._stopped = False
        self._thread = threading.Thread(target=self._serve, name="views", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._connections)

    def open(self, sandbox: int, device: int, datasets: Sequence[str]) -> None:
        """Answer on this descriptor from now on, until the sandbox ends. It is the views' own now."""
        self._post(lambda: self._open(sandbox, device, datasets))

    def close(self, sandbox: int) -> None:
        """One whose sandbox has ended is closed already."""
        self._post(lambda: self._close_of(sandbox))

    def hide(self, dataset: str, sandboxes: Sequence[int]) -> None:
        """They see it no more, nor another of its name; what they have open stays readable."""
        self._post(lambda: self._hide(dataset, sandboxes))

    def drop(self, dataset: str) -> None:
        """It is removed: no view shows it until it is renewed. What is open stays readable."""
        self._post(lambda: self._names.drop(dataset))

    def renew(self, dataset: str) -> None:
        """It is there again, or has another origin: what was known of it is old."""
        self._post(lambda: self._names.renew(dataset))

    def stop(self) -> None:
        """Whoever reads in a view gets an error from now on."""
        self._stopping = True
        self._post(lambda: None)
        self._thread.join()
        with self._waking:
            self._stopped = True
            os.close(self._wake)

    # --- on the thread -------------------------------------------------------------------------------------

    def _post(self, work: Callable[[], None]) -> None:
        self._posted.append(work)
        with self._waking:
            if not self._stopped:  # or the descriptor may be another's by now
                os.eventfd_write(self._wake, 1)

    def _serve(self) -> None:
        while not self._stopping:
            for fd, _ in self._epoll.poll():
                if fd == self._wake:
                    os.eventfd_read(self._wake)
                    self._do_posted()
                elif fd in self._connections:
                    self._serve_one(self._connections[fd])
        for connection in list(self._connections.values()):
            self._end(connection)
        self._epoll.close()

    def _serve_one(self, connection: ViewConnection) -> None:
        try:
            connection.serve()
        except UnmountedError:
            try:
                self._end(connection)
            except Exception:  # one sandbox's trouble is not the others'
                log.exception("a view could not be closed")

    def _do_posted(self) -> None:
        while self._posted:
            work = self._posted.popleft()
            try:
                work()
            except Exception:  # one sandbox's trouble is not the others'
                log.exception("a view's work failed")

    def _open(self, sandbox: int, device: int, datasets: Sequence[str]) -> None:
        connection = ViewConnection(
            sandbox, device, datasets, cache=self._cache, names=self._names, tell=self._tell, post=self._post,
            passthrough=self._passthrough,
        )  # fmt: skip
        for dataset in self._hidden.pop(sandbox, ()):
            connection.hide(dataset)
        self._connections[device] = connection
        self._epoll.register(device, select.EPOLLIN)

    def _hide(self, dataset: str, sandboxes: Sequence[int]) -> None:
        connections = {connection.sandbox: connection for connection in self._connections.values()}
        for sandbox in sandboxes:
            if sandbox in connections:
                connections[sandbox].hide(dataset)
            elif len(self._hidden) < _MAX_EARLY_HIDDEN:  # its view comes by another way, and may come later
                self._hidden.setdefault(sandbox, []).append(dataset)

    def _close_of(self, sandbox: int) -> None:
        self._hidden.pop(sandbox, None)
        for connection in [each for each in self._connections.values() if each.sandbox == sandbox]:
            self._end(connection)

    def _end(self, connection: ViewConnection) -> None:
        del self._connections[connection.device]
        self._epoll.unregister(connection.device)
        connection.close()
