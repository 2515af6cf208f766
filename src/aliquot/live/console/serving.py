"""The console's listener and its server, beside the gateway's in the same process."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address

import uvicorn

from aliquot.core.errors import InputError
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.console.app import PREFIX, ConsoleApp
from aliquot.live.console.guard import RequestGuard, own_hosts
from aliquot.live.console.protocol import ConsoleProtocol
from aliquot.live.console.sessions import ConsoleSessions
from aliquot.live.console.settings import ConsoleSettings
from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.http.listeners import listen, url_of
from aliquot.live.store.base import Store
from aliquot.live.store.operator_token import OperatorToken

MAX_CONNECTIONS = 256
_KEEP_ALIVE_S = 30
_OPTION = "--console-port"
_MAX_PORT = 2**16 - 1


def listen_for_console(settings: ConsoleSettings, host: str, port: int) -> list[socket.socket]:
    """Return the console's listening sockets, or none if it is off. Raises `InputError` for a port that is taken.

    `port` is the gateway's, as it was asked for.
    """
    if not settings.enabled:
        return []
    if settings.port is not None:
        return listen(host, settings.port, _OPTION)
    if 0 < port < _MAX_PORT:
        with suppress(InputError):
            return listen(host, port + 1, _OPTION)
    return listen(host, 0, _OPTION)


class ConsoleServer:
    """Serves the console until it is stopped."""

    def __init__(
        self,
        settings: ConsoleSettings,
        listeners: list[socket.socket],
        gateway: Gateway,
        catalogue: Catalogue,
        store: Store,
        token: OperatorToken,
        tls: tuple[str, str] | None,
    ) -> None:
        """Take the certificate's file and its key's as `tls`, if there are any."""
        self._listeners = listeners
        self._sessions = ConsoleSessions(store, catalogue, token)
        address, port = listeners[0].getsockname()[:2]
        secure = tls is not None or (settings.url or "").startswith("https:")
        self.url = (settings.url or url_of(listeners[0], tls=tls is not None)).rstrip("/") + f"{PREFIX}/"
        app = ConsoleApp(
            gateway,
            catalogue,
            token,
            self._sessions,
            RequestGuard(own_hosts(address, port, settings.url), secure=secure),
            may_log_in=secure or ip_address(address).is_loopback,
        )
        self._server = _QuietServer(_config(app, tls))
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._sessions.load()
        self._task = asyncio.create_task(self._server.serve(sockets=self._listeners))

    async def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        if self._task is not None:
            await self._task


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to the gateway's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: ConsoleApp, tls: tuple[str, str] | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ConsoleProtocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_S,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
