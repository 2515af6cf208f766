"""The drivers of operations: they send requests over HTTP, blocking or on an event loop, and keep connections open.

Threads and event loops may share a client. A forked child gets its own connections.
"""

import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from aliquot.sdk.answers import error_of
from aliquot.sdk.errors import NoServerError, PlatformError, SdkError, UsageError
from aliquot.sdk.sandbox import decode_reply, encode_request
from aliquot.sdk.server import START_ONE, ServerAddress, read_server
from aliquot.sdk.tracing import with_trace
from aliquot.sdk.wire import HttpReply, HttpRequest, Operation, Pause

if TYPE_CHECKING:
    import asyncio

    from aliquot.sdk.http.blocking import BlockingConnections
    from aliquot.sdk.http.exchange import TransportError
    from aliquot.sdk.http.on_loop import LoopConnections

T = TypeVar("T")

_UNAUTHORIZED = 401


class Client:
    """The connections to one platform, for one namespace."""

    def __init__(self, server: ServerAddress) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._blocking: BlockingConnections | None = None
        self._blocking_key = ("", 0)  # the address and the process that these connections belong to
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _KeptConnections] = WeakKeyDictionary()

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
        from aliquot.sdk.http.exchange import TransportError

        request = encode_request(request, self.server)
        try:
            reply = self._connections().send(with_trace(request), self._authorization(request))
        except TransportError as error:
            raise _explained(error, self.server, request) from error
        return decode_reply(reply)

    def lines(self, request: HttpRequest, what: str) -> Iterator[str]:
        """Yield the lines of a good reply as they come. Raise the error that any other reply means."""
        from aliquot.sdk.http.blocking import lines_of
        from aliquot.sdk.http.exchange import TransportError

        readers = self._connections().stream(with_trace(request), self._authorization(request))
        try:
            first = next(readers)
            if first.status >= 400:  # noqa: PLR2004 - HTTP's own line
                deque(readers, maxlen=0)  # the rest of the reply
                raise error_of(first.reply(), what)
            yield from lines_of(chain((first,), readers))
        except TransportError as error:
            raise _explained(error, self.server, request) from error
        finally:
            readers.close()

    async def _send_async(self, request: HttpRequest) -> HttpReply:
        from aliquot.sdk.http.exchange import TransportError

        request = encode_request(request, self.server)
        connections = await self._async_connections()
        try:
            reply = await connections.send(with_trace(request), self._authorization(request))
        except TransportError as error:
            raise _explained(error, self.server, request) from error
        return decode_reply(reply)

    def _authorization(self, request: HttpRequest) -> str:
        if not request.as_operator:
            return _basic(self.server.key)
        if not self.server.operator:
            raise UsageError(
                f"{self.server.origin or self.server.url}: this needs the operator's key, which is not known here; "
                "run it where `aliquot up` keeps its data (ALIQUOT_DATA), or set ALIQUOT_OPERATOR"
            )
        return f"Bearer {self.server.operator}"

    def _connections(self) -> "BlockingConnections":
        from aliquot.sdk.http.blocking import BlockingConnections
        from aliquot.sdk.http.exchange import target_of

        key = (self.server.url, os.getpid())
        if self._blocking is None or self._blocking_key != key:
            with self._lock:
                if self._blocking is None or self._blocking_key != key:
                    self._blocking, self._blocking_key = BlockingConnections(target_of(self.server.url)), key
        return self._blocking

    async def _async_connections(self) -> "LoopConnections":
        import asyncio

        loop = asyncio.get_running_loop()
        kept = self._by_loop.get(loop)
        if kept is None or kept.url != self.server.url:
            life = _kept_open(self.server.url)
            kept = self._by_loop[loop] = _KeptConnections(self.server.url, life, await anext(life))  # does not wait
        return kept.connections

    def close(self) -> None:
        """Close the blocking connections. Those of event loops close with their loops."""
        with self._lock:
            if self._blocking is not None and self._blocking_key[1] == os.getpid():
                self._blocking.close()
            self._blocking = None


class _KeptConnections(NamedTuple):
    url: str
    life: AsyncIterator["LoopConnections"]  # kept, because the connections close when the generator does
    connections: "LoopConnections"


async def _kept_open(url: str) -> AsyncIterator["LoopConnections"]:
    """Yield connections. An event loop closes its open generators when it ends, and so the connections."""
    from aliquot.sdk.http.exchange import target_of
    from aliquot.sdk.http.on_loop import LoopConnections

    connections = LoopConnections(target_of(url))
    try:
        yield connections
    finally:
        await connections.close()


@lru_cache(maxsize=16)
def _basic(key: str) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(key.encode()).decode()


def _explained(error: "TransportError", server: ServerAddress, request: HttpRequest) -> SdkError:
    """Return the error that a failed exchange means for the caller."""
    from aliquot.sdk.http.exchange import NoAnswerError, NoConnectionError

    if isinstance(error, NoConnectionError):
        found = f" (from {server.origin})" if server.origin else ""
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return NoServerError(
                f"the certificate of {server.url}{found} is not trusted: {error}; set SSL_CERT_FILE to the file of the "
                "certificate, or of the authority that signed it, and use an address that the certificate names"
            )
        return NoServerError(f"no platform answers at {server.url}{found}: {error}; {START_ONE}")
    lost = f"the connection to {server.url} was lost ({error})"
    if isinstance(error, NoAnswerError):
        lost = f"{server.url} did not answer within {request.timeout_s:g} s"
    may = "; the call may have run" if request.method == "POST" else ""
    return PlatformError(lost + may)


_clients: dict[ServerAddress, Client] = {}
_clients_lock = threading.Lock()


def client_for(server: ServerAddress) -> Client:
    """Return the process's client for a platform and namespace, so that all apps share its connections."""
    with _clients_lock:
        return _clients.setdefault(server, Client(server))
