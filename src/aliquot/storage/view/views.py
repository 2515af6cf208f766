"""Serve all views of a node on one thread, which never waits for a file or a listing.

One thread is enough, because names and opens take microseconds and the kernel reads complete files directly. Decision
0022 has the figures.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from aliquot.budgets import Budget
from aliquot.storage.cache import Cache
from aliquot.storage.view.connection import ViewConnection
from aliquot.storage.view.contents import NodeContents
from aliquot.storage.view.events import OnViewEvent
from aliquot.storage.view.handles import TenantHandles
from aliquot.storage.view.requests import UnmountedError

log = structlog.get_logger("aliquot.view")

MAX_HANDLES = 8192  # by default
_MAX_EARLY_HIDDEN = 10_000  # sandboxes with hidden datasets whose views have not arrived yet


class ViewServer:
    """The views of all sandboxes. Every method may be called from any thread, and all but `stop` return at once."""

    def __init__(
        self, cache: Cache, on_event: OnViewEvent, *, passthrough: bool = True, max_handles: int = MAX_HANDLES
    ) -> None:
        """Start the thread. `passthrough` lets the kernel read complete files directly, if permitted.

        `max_handles` is the number of files and directories that all views together may have open.
        """
        self._handles = Budget("open files of datasets", "files", max_handles)
        self._passthrough = passthrough and os.geteuid() == 0
        self._cache = cache
        self._on_event = on_event
        self._names = NodeContents(cache, self._post)
        self._connections: dict[int, ViewConnection] = {}  # by descriptor
        self._hidden: dict[int, list[str]] = {}  # by sandbox, until its view arrives
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

    def open(self, sandbox: int, device: int, datasets: Sequence[str], tenant: str = "") -> None:
        """Serve a view on this descriptor, which is owned and closed here, until the sandbox ends."""
        self._post(lambda: self._open(sandbox, device, datasets, tenant))

    def close(self, sandbox: int) -> None:
        """Close a sandbox's view. Nothing happens if it is closed already."""
        self._post(lambda: self._close_view(sandbox))

    def hide(self, dataset: str, sandboxes: Sequence[int]) -> None:
        """Hide every dataset of this name from these sandboxes for good. Open files stay readable."""
        self._post(lambda: self._hide(dataset, sandboxes))

    def drop(self, dataset: str) -> None:
        """Remove a dataset from all views until it is renewed. Open files stay readable."""
        self._post(lambda: self._names.drop(dataset))

    def renew(self, dataset: str) -> None:
        """Add or replace a dataset, and drop its known contents."""
        self._post(lambda: self._names.renew(dataset))

    def stop(self) -> None:
        """Stop the thread. Readers of views get errors from now on."""
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
            if not self._stopped:  # else the descriptor's number may be in use again
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
            except Exception:  # one view's failure must not stop the others
                log.exception("a view could not be closed")

    def _do_posted(self) -> None:
        while self._posted:
            work = self._posted.popleft()
            try:
                work()
            except Exception:  # one view's failure must not stop the others
                log.exception("a view's work failed")

    def _open(self, sandbox: int, device: int, datasets: Sequence[str], tenant: str) -> None:
        connection = ViewConnection(
            sandbox, device, datasets, cache=self._cache, names=self._names, on_event=self._on_event, post=self._post,
            passthrough=self._passthrough, handles=TenantHandles(self._handles, tenant),
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
            elif len(self._hidden) < _MAX_EARLY_HIDDEN:  # its view arrives on another socket, maybe later
                self._hidden.setdefault(sandbox, []).append(dataset)

    def _close_view(self, sandbox: int) -> None:
        self._hidden.pop(sandbox, None)
        for connection in [each for each in self._connections.values() if each.sandbox == sandbox]:
            self._end(connection)

    def _end(self, connection: ViewConnection) -> None:
        del self._connections[connection.device]
        self._epoll.unregister(connection.device)
        connection.close()
