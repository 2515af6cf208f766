"""The drivers of operations: they send requests over HTTP, blocking or on an event loop, and keep connections open.

Threads and event loops may share a client. A forked child gets its own connections.
"""

import os
import threading
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from weakref import WeakKeyDictionary

from aliquot.sdk.answers import error_of
from aliquot.sdk.errors import NoServerError, PlatformError, UsageError
from aliquot.sdk.sandbox import decode_reply, encode_request
from aliquot.sdk.server import START_ONE, ServerAddress, read_server
from aliquot.sdk.wire import BodyPieces, HttpReply, HttpRequest, Operation, Pause

if TYPE_CHECKING:
    import asyncio
    import ssl

    import httpx

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 256
_UNAUTHORIZED = 401
# Shorter than the server's own (uvicorn: 5 s), so that no request uses a connection that is being closed.
_KEEP_ALIVE_S = 4.0


class Client:
    """The connections to one platform, for one namespace."""

    def __init__(self, server: ServerAddress) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._blocking: httpx.Client | None = None
        self._pid = 0
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnections] = WeakKeyDictionary()

    def run(self, operation: Operation[T]) -> T:
        """Run an operation and wait for its result."""
        import time

        operation = self._reconnecting(operation)
        try:
            step = next(operation)
            while True:
                try:
                    reply = None if isinstance(step, Pause) else self._send(step)
                except Exception as error:  # noqa: BLE001 - the operation may handle it
                    step = operation.throw(error)
                    continue
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                step = operation.send(reply)
        except StopIteration as end:
            return cast("T", end.value)

    async def run_async(self, operation: Operation[T]) -> T:
        """Run an operation on the running event loop."""
        import asyncio

        operation = self._reconnecting(operation)
        try:
            step = next(operation)
            while True:
                try:
                    reply = None if isinstance(step, Pause) else await self._send_async(step)
                except Exception as error:  # noqa: BLE001 - the operation may handle it
                    step = operation.throw(error)
                    continue
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                step = operation.send(reply)
        except StopIteration as end:
            return cast("T", end.value)

    def _reconnecting(self, operation: Operation[T]) -> Operation[T]:
        """Wrap an operation so that it finds a restarted platform again through `local.json` in its data folder.

        A request is sent again only if it certainly did not start: there was no connection, or the key was refused.
        """
        try:
            step = next(operation)
            while True:
                try:
                    reply = yield step
                    if reply is not None and reply.status == _UNAUTHORIZED and self._reload_address():
                        reply = yield step
                except NoServerError as error:
                    if not self._reload_address():
                        step = operation.throw(error)
                        continue
                    reply = yield step
                except Exception as error:  # noqa: BLE001 - the operation may handle it
                    step = operation.throw(error)
                    continue
                step = operation.send(reply)
        except StopIteration as end:
            return cast("T", end.value)

    def _reload_address(self) -> bool:
        """Read the address and the key again, and return whether they have changed."""
        try:
            fresh = read_server(self.server.origin) if self.server.origin.endswith(".json") else self.server
        except NoServerError:
            return False
        changed = fresh != self.server
        self.server = fresh
        return changed

    def _send(self, request: HttpRequest) -> HttpReply:
        import httpx

        request = encode_request(request, self.server)
        try:
            response = self._connections().request(**self._arguments(request), content=cast("bytes", request.body))
        except httpx.TransportError as error:
            _explain(error, self.server, request)
        return decode_reply(HttpReply(response.status_code, response.headers, response.content))

    def lines(self, request: HttpRequest, what: str) -> Iterator[str]:
        """Yield the lines of a good reply as they come. Raise the error that any other reply means."""
        import httpx

        content = cast("bytes", request.body)
        try:
            with self._connections().stream(**self._arguments(request), content=content) as response:
                if response.status_code >= 400:  # noqa: PLR2004 - HTTP's own line
                    raise error_of(HttpReply(response.status_code, response.headers, response.read()), what)
                yield from response.iter_lines()
        except httpx.TransportError as error:
            _explain(error, self.server, request)

    async def _send_async(self, request: HttpRequest) -> HttpReply:
        import httpx

        request = encode_request(request, self.server)
        body = _async_pieces(request.body) if isinstance(request.body, BodyPieces) else request.body
        client = await self._async_connections()
        try:
            response = await client.request(**self._arguments(request), content=cast("bytes", body))
        except httpx.TransportError as error:
            _explain(error, self.server, request)
        return decode_reply(HttpReply(response.status_code, response.headers, response.content))

    def _arguments(self, request: HttpRequest) -> dict[str, Any]:
        headers = dict(request.headers)
        if isinstance(request.body, BodyPieces):
            headers["Content-Length"] = str(request.body.length)
        headers["Authorization"] = self._authorization(request)
        return {
            "method": request.method,
            "url": _url(self.server.url + request.path, tuple(request.query.items())),
            "headers": headers,
            "timeout": _timeout(request.timeout_s),
        }

    def _authorization(self, request: HttpRequest) -> str:
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
                self._blocking = httpx.Client(
                    limits=_limits(), trust_env=_trust_env(self.server), verify=_verify(self.server)
                )
                self._pid = os.getpid()
            return self._blocking

    async def _async_connections(self) -> "httpx.AsyncClient":
        import asyncio

        loop = asyncio.get_running_loop()
        kept = self._by_loop.get(loop)
        if kept is None:
            life = _kept_open(self.server)
            kept = self._by_loop[loop] = _LoopConnections(life, await anext(life))  # this does not wait
        return kept.client

    def close(self) -> None:
        """Close the blocking connections. Those of event loops close with their loops."""
        with self._lock:
            if self._blocking is not None and self._pid == os.getpid():
                self._blocking.close()
            self._blocking = None


class _LoopConnections:
    def __init__(self, life: AsyncIterator["httpx.AsyncClient"], client: "httpx.AsyncClient") -> None:
        self.life = life  # kept, because the client closes when the generator does
        self.client = client


async def _kept_open(server: ServerAddress) -> AsyncIterator["httpx.AsyncClient"]:
    """Yield a client. An event loop closes its open generators when it ends, and so the connections."""
    import httpx

    async with httpx.AsyncClient(limits=_limits(), trust_env=_trust_env(server), verify=_verify(server)) as client:
        yield client


async def _async_pieces(body: BodyPieces) -> AsyncIterator[memoryview]:
    for piece in body:
        yield piece


def _limits() -> "httpx.Limits":
    import httpx

    return httpx.Limits(
        max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS, keepalive_expiry=_KEEP_ALIVE_S
    )


def _verify(server: ServerAddress) -> "ssl.SSLContext | bool":
    """Return what verifies certificates. Reading the usual ones takes 25 ms, in vain for a platform on this machine."""
    import ssl

    return True if _trust_env(server) else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _trust_env(server: ServerAddress) -> bool:
    """Return whether proxies of the environment apply. They do not apply to a platform on this machine."""
    return not server.url.startswith(("http://127.", "http://localhost", "http://[::1]"))


@lru_cache(maxsize=256)
def _url(address: str, query: tuple[tuple[str, str | int], ...]) -> "httpx.URL":
    """Parse an address. The result is cached, because parsing takes a tenth of the time of a call."""
    import httpx

    return httpx.URL(address, params=dict(query)) if query else httpx.URL(address)


@lru_cache(maxsize=16)
def _timeout(timeout_s: float) -> "httpx.Timeout":
    import httpx

    return httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S)


def _explain(error: "httpx.TransportError", server: ServerAddress, request: HttpRequest) -> NoReturn:
    import httpx

    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        found = f" (from {server.origin})" if server.origin else ""
        raise NoServerError(f"no platform answers at {server.url}{found}: {error}; {START_ONE}") from error
    if isinstance(error, httpx.UnsupportedProtocol | httpx.ProxyError):
        raise UsageError(f"{server.url}: {error}") from error
    lost = f"the connection to {server.url} was lost"
    if isinstance(error, httpx.TimeoutException):
        lost = f"{server.url} did not answer within {request.timeout_s:g} s"
    may = "; the call may have run" if request.method == "POST" else ""
    raise PlatformError(f"{lost} ({type(error).__name__} {error}){may}") from error


_clients: dict[ServerAddress, Client] = {}
_clients_lock = threading.Lock()


def client_for(server: ServerAddress) -> Client:
    """Return the process's client for a platform and namespace, so that all apps share its connections."""
    with _clients_lock:
        return _clients.setdefault(server, Client(server))
