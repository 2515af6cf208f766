"""The HTTP server: uvicorn with our signals and our end, and its configuration, which gateway processes share."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import uvicorn

from aliquot.live.gateway.http.accepted_connections import AcceptedConnections
from aliquot.live.gateway.http.listeners import BACKLOG


class HttpProcesses(Protocol):
    """Processes that serve HTTP in place of this one."""

    async def ready(self) -> None:
        """Wait until all of them accept connections."""

    async def stop(self) -> None:
        """Accept no more connections, and wait until all requests are answered or the time for it has passed."""

    def force(self) -> None:
        """Do not wait for answers."""


class HttpServer(uvicorn.Server):
    """A uvicorn server that reports when it answers, and leaves signals and the end of the process to us."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: AcceptedConnections,
        on_started: Callable[[], None],
        on_stopping: Callable[[], None],
        gateways: HttpProcesses | None = None,
    ) -> None:
        """With gateway processes this one serves only the connections of functions."""
        super().__init__(config)
        self._gateways = gateways
        self._connections = connections
        self._on_started = on_started
        self._on_stopping = on_stopping
        self._stopping = asyncio.Event()
        self.forced = asyncio.Event()  # set by a second signal

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._stopping.set()
        if self.force_exit:
            self.forced.set()
            if self._gateways is not None:
                self._gateways.force()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets if self._gateways is None else [])
        self._connections.serve(self.config, self.server_state)
        if self._gateways is not None:
            await self._wait_for(self._gateways)
            if self.should_exit:
                return
        self._on_started()

    async def _wait_for(self, gateways: HttpProcesses) -> None:
        """Wait until the gateway processes accept connections, or until a signal ends this server."""
        waits = asyncio.create_task(gateways.ready()), asyncio.create_task(self._stopping.wait())
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stopping()
        self._connections.close()
        if self._gateways is None:
            await super().shutdown(sockets)
        else:
            await asyncio.gather(super().shutdown(sockets), self._gateways.stop())


def make_config(
    app: Callable[..., Any],
    protocol: type[asyncio.Protocol],
    grace_s: float,
    certificate: str | Path | None,
    certificate_key: str | Path | None,
    backlog: int = BACKLOG,
) -> uvicorn.Config:
    """Return the configuration of a server with this HTTP protocol, which leaves logs and signals to us."""
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        backlog=backlog,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=int(grace_s),
        ssl_certfile=certificate,
        ssl_keyfile=None if certificate_key is None else str(certificate_key),
    )
