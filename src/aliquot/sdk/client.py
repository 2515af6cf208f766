"""The drivers: they carry out operations over HTTP, one blocking and one on an event loop, with connections kept alive.

A client may be shared by threads and by event loops. A forked child gets connections of its own.
"""

import os
import threading
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from weakref import WeakKeyDictionary

from aliquot.sdk.answers import error_of
from aliquot.sdk.errors import NoServerError, PlatformError, UsageError
from aliquot.sdk.server import START_ONE, Server, read_server
from aliquot.sdk.sharing import received, to_send
from aliquot.sdk.wire import Body, Operation, Pause, Reply, Request

if TYPE_CHECKING:
    import asyncio

    import httpx

T = TypeVar("T")

_CONNECT_S = 5.0
_CONNECTIONS = 256
_UNAUTHORIZED = 401
# Shorter than the servers' own (uvicorn: 5 s), so that a request never meets a connection that is being closed.
_KEEP_ALIVE_S = 4.0


class Client:
    """Speaks to one platform in one namespace."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._blocking: httpx.Client | None = None
        self._pid = 0
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _AsyncClient] = WeakKeyDictionary()

    def run(self, operation: Operation[T]) -> T:
        """Carry it out and wait for its result."""
        import time

        operation = self._persistent(operation)
        try:
            step = next(operation)
            while True:
                try:
                    reply = None if isinstance(step, Pause) else self._send(step)
                except Exception as error:  # noqa: BLE001 - the operation may know what to do
                    step = operation.throw(error)
                    continue
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                step = operation.send(reply)
        except StopIteration as end:
            return cast("T", end.value)

    async def run_async(self, operation: Operation[T]) -> T:
        """The same on the running event loop."""
        import asyncio

        operation = self._persistent(operation)
        try:
            step = next(operation)
            while True:
                try:
                    reply = None if isinstance(step, Pause) else await self._send_async(step)
                except Exception as error:  # noqa: BLE001 - the operation may know what to do
                    step = operation.throw(error)
                    continue
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                step = operation.send(reply)
        except StopIteration as end:
            return cast("T", end.value)

    def _persistent(self, operation: Operation[T]) -> Operation[T]:
        """The same operation; a platform that has been started anew is found again, where its data folder tells.

        Only what has certainly not been begun is asked again: no connection came about, or the key was refused.
        """
        try:
            step = next(operation)
            while True:
                try:
                    reply = yield step
                    if reply is not None and reply.status == _UNAUTHORIZED and self._moved():
                        reply = yield step
                except NoServerError as error:
                    if not self._moved():
                        step = operation.throw(error)
                        continue
                    reply = yield step
                except Exception as error:  # noqa: BLE001 - the operation may know what to do
                    step = operation.throw(error)
                    continue
                step = operation.send(reply)
        except StopIteration as end:
            return cast("T", end.value)

    def _moved(self) -> bool:
        """Whether the platform is elsewhere by now, or has another key; if so, it is used from now on."""
        try:
            fresh = read_server(self.server.origin) if self.server.origin.endswith(".json") else self.server
        except NoServerError:
            return False
        moved = fresh != self.server
        self.server = fresh
        return moved

    def _send(self, request: Request) -> Reply:
        import httpx

        request = to_send(request, self.server)
        try:
            response = self._connections().request(**self._arguments(request), content=cast("bytes", request.body))
        except httpx.TransportError as error:
            _explain(error, self.server, request)
        return received(Reply(response.status_code, response.headers, response.content))

    def lines(self, request: Request, what: str) -> Iterator[str]:
        """Of a good answer, as they come; another is the error that it means. `what` was asked for."""
        import httpx

        content = cast("bytes", request.body)
        try:
            with self._connections().stream(**self._arguments(request), content=content) as response:
                if response.status_code >= 400:  # noqa: PLR2004 - HTTP's own line
                    raise error_of(Reply(response.status_code, response.headers, response.read()), what)
                yield from response.iter_lines()
        except httpx.TransportError as error:
            _explain(error, self.server, request)

    async def _send_async(self, request: Request) -> Reply:
        import httpx

        request = to_send(request, self.server)
        body = _async_pieces(request.body) if isinstance(request.body, Body) else request.body
        client = await self._async_connections()
        try:
            response = await client.request(**self._arguments(request), content=cast("bytes", body))
        except httpx.TransportError as error:
            _explain(error, self.server, request)
        return received(Reply(response.status_code, response.headers, response.content))

    def _arguments(self, request: Request) -> dict[str, Any]:
        headers = dict(request.headers)
        if isinstance(request.body, Body):
            headers["Content-Length"] = str(request.body.length)
        headers["Authorization"] = self._authorization(request)
        return {
            "method": request.method,
            "url": _url(self.server.url + request.path, tuple(request.query.items())),
            "headers": headers,
            "timeout": _timeout(request.patience_s),
        }

    def _authorization(self, request: Request) -> str:
        from base64 import b64encode

        if not request.as_operator:
            return "Basic " + b64encode(self.server.key.encode()).decode()
        if not self.server.operator:
            raise UsageError(
                f"{self.server.origin or self.server.url}: this needs the operator's key, which is not known here; "
                "run it where `aliquot up` keeps its data (ALIQUOT_DATA), or set ALIQUOT_OPERATOR"
            )
        return f"Bearer {self.server.operator}"

    def _connections(self) -> "httpx.Client":
        import httpx

        with self._lock:
            if self._blocking is None or self._pid != os.getpid():
                self._blocking = httpx.Client(limits=_limits(), trust_env=_trust_env(self.server))
                self._pid = os.getpid()
            return self._blocking

    async def _async_connections(self) -> "httpx.AsyncClient":
        import asyncio

        loop = asyncio.get_running_loop()
        kept = self._by_loop.get(loop)
        if kept is None:
            life = _kept_open(self.server)
            kept = self._by_loop[loop] = _AsyncClient(life, await anext(life))  # which does not really wait
        return kept.client

    def close(self) -> None:
        """Close the blocking connections; those of event loops close with their loops."""
        with self._lock:
            if self._blocking is not None and self._pid == os.getpid():
                self._blocking.close()
            self._blocking = None


class _AsyncClient:
    def __init__(self, life: AsyncIterator["httpx.AsyncClient"], client: "httpx.AsyncClient") -> None:
        self.life = life  # held, because it ends the client's life when it goes
        self.client = client


async def _kept_open(server: Server) -> AsyncIterator["httpx.AsyncClient"]:
    """A generator, because event loops close those that are open when they end: so the connections close in time."""
    import httpx

    async with httpx.AsyncClient(limits=_limits(), trust_env=_trust_env(server)) as client:
        yield client


async def _async_pieces(body: Body) -> AsyncIterator[memoryview]:
    for piece in body:
        yield piece


def _limits() -> "httpx.Limits":
    import httpx

    return httpx.Limits(
        max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_KEEP_ALIVE_S
    )


def _trust_env(server: Server) -> bool:
    """A proxy of the environment is not meant for a platform on this machine."""
    return not server.url.startswith(("http://127.", "http://localhost", "http://[::1]"))


@lru_cache(maxsize=256)
def _url(address: str, query: tuple[tuple[str, str | int], ...]) -> "httpx.URL":
    """Remembered: a program calls few functions many times, and to parse an address takes httpx a tenth of a call."""
    import httpx

    return httpx.URL(address, params=dict(query)) if query else httpx.URL(address)


@lru_cache(maxsize=16)
def _timeout(patience_s: float) -> "httpx.Timeout":
    import httpx

    return httpx.Timeout(patience_s, connect=_CONNECT_S)


def _explain(error: "httpx.TransportError", server: Server, request: Request) -> NoReturn:
    import httpx

    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        found = f" (from {server.origin})" if server.origin else ""
        raise NoServerError(f"no platform answers at {server.url}{found}: {error}; {START_ONE}") from error
    if isinstance(error, httpx.UnsupportedProtocol | httpx.ProxyError):
        raise UsageError(f"{server.url}: {error}") from error
    lost = f"the connection to {server.url} was lost"
    if isinstance(error, httpx.TimeoutException):
        lost = f"{server.url} did not answer within {request.patience_s:g} s"
    may = "; the call may have run" if request.method == "POST" else ""
    raise PlatformError(f"{lost} ({type(error).__name__} {error}){may}") from error


_clients: dict[Server, Client] = {}
_clients_lock = threading.Lock()


def client_for(server: Server) -> Client:
    """One client for each platform and namespace in a process, so that all apps share its connections."""
    with _clients_lock:
        return _clients.setdefault(server, Client(server))
