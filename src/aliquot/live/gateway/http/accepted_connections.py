"""Connections that others have accepted for the gateway.

Those of functions to the API were accepted in the functions' own network namespaces (`node.network`). A gateway process
accepts its own (`processes/accepting.py`).
"""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.server import ServerState

MAX_WAITING = 1024  # connections that come before the gateway serves


class AcceptedConnections:
    """Gives connections to the gateway's HTTP protocol, as if they had come through its listening socket."""

    def __init__(self) -> None:
        self._waiting: list[socket.socket] = []
        self._server: tuple[uvicorn.Config, ServerState] | None = None
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def starting(self) -> int:
        """The number of connections whose protocol has not begun yet."""
        return len(self._tasks)

    def put(self, connection: socket.socket) -> None:
        """Serve a connection, or keep it until the gateway serves."""
        if self._closed or len(self._waiting) >= MAX_WAITING:
            connection.close()
        elif self._server is None:
            self._waiting.append(connection)
        else:
            self._start(connection, *self._server)

    def serve(self, config: uvicorn.Config, state: ServerState) -> None:
        """Serve all connections from now on."""
        self._server = config, state
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            self.put(connection)

    def close(self) -> None:
        """Refuse connections from now on."""
        self._closed = True
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()

    def _start(self, connection: socket.socket, config: uvicorn.Config, state: ServerState) -> None:
        connection.setblocking(False)

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]
            return made

        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(protocol, connection, ssl=config.ssl))
        self._tasks.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a failed handshake is the client's own loss
