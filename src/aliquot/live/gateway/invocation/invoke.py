"""Handle POST …/actions/NAME: from bytes to a call, without a framework, a task or a future for a warm call.

The meanings of paths and queries are cached until the catalogue changes. A warm call then costs a few dictionary
lookups and one check of its body.
"""

import asyncio
from collections.abc import Coroutine

from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.http.auth import Auth, InvocationTarget, Principal
from aliquot.live.gateway.http.connections import Connections
from aliquot.live.gateway.http.deadlines import Deadlines
from aliquot.live.gateway.http.limits import limits_of
from aliquot.live.gateway.http.names import check_name, check_namespace, decoded
from aliquot.live.gateway.http.query import InvokeOptions, check_timeout, invoke_options
from aliquot.live.gateway.http.refusal import (
    Refusal,
    not_allowed,
    not_found,
    refusal_for,
    too_large,
    unsupported_media,
)
from aliquot.live.gateway.http.responses import PICKLE, SAFETENSORS
from aliquot.live.gateway.invocation.exchange import Exchange, shared_arguments
from aliquot.live.gateway.invocation.heads import KnownHead
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.activations import note
from aliquot.live.invocations.call import Call, SharedArguments
from aliquot.live.invocations.errors import CallRefusedError, NotPromisedError
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.objective import CallObjective
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.sessions.registry import SessionNotFoundError, SessionRegistry
from aliquot.live.node.shared_buffers import NodeBuffers
from aliquot.live.store.errors import AccessDeniedError, NotFoundError, WrongCollectionError
from aliquot.live.store.ids import Ids
from aliquot.live.store.records import KERNEL, FullName

PREFIX = b"/api/v1/namespaces/"
_MAX_CACHED_ENTRIES = 1024
_MAX_CACHED_KEY_BYTES = 256
_JSON_TYPES = frozenset([None, b"", b"application/json", b"application/json; charset=utf-8"])


def is_invocation(method: str, path: bytes) -> bool:
    """Return whether `InvokeHandler` handles the request: a POST to a path below a namespace's actions."""
    below = path.startswith(PREFIX) and path.find(b"/actions/", len(PREFIX) + 1) > 0
    return below and method == "POST" and not path.endswith(b"/")


class InvokeHandler:
    """Handles invocations for all transports. See `exchange.py` for the protocol between them."""

    def __init__(
        self,
        platform: Platform,
        catalogue: Catalogue,
        settings: GatewaySettings,
        auth: Auth,
        metrics: Metrics,
        sessions: SessionRegistry,
        json_checker: JsonChecker,
        connections: Connections,
        buffers: NodeBuffers | None = None,
    ) -> None:
        self._platform = platform
        self._connections = connections
        self._catalogue = catalogue
        self._settings = settings
        self._auth = auth
        self._metrics = metrics
        self._sessions = sessions
        self._json_checker = json_checker
        self._ids = Ids()
        self._options: dict[bytes, InvokeOptions] = {}
        self._waiting: Deadlines[Exchange] = Deadlines(settings.blocking_ms / 1000, self._expire)
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffers = buffers

    @property
    def waiting(self) -> int:
        """The number of blocking callers with the default timeout."""
        return len(self._waiting)

    def close(self) -> None:
        """Stop the timer."""
        self._waiting.close()

    def check_head(self, exchange: Exchange) -> str:
        """Refuse a request by its credentials or path before its body has arrived. Return the caller's namespace."""
        try:
            principal = self._auth.principal(exchange.authorization)
            self._connections.assign(exchange.connection, principal.name)
            _ = principal.targets.get(exchange.path) or self._resolve(principal, exchange.path)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return ""
        return principal.name

    def know(self, exchange: Exchange, size: int, length: int) -> KnownHead | None:
        """Return the meaning of a head, or None if it is not to be remembered."""
        options = self._options.get(exchange.query)
        if options is None or exchange.authorization is None or exchange.content_type not in _JSON_TYPES:
            return None
        caller = self._auth.digest(exchange.authorization)
        return (
            KnownHead(exchange.path, options, caller, size, length, exchange.limits)
            if self._auth.recall(caller) is not None
            else None
        )

    def recall(self, head: KnownHead) -> Principal | None:
        """Return the caller of a known head, or None if its key must be checked again."""
        return self._auth.recall(head.caller)

    def handle(self, exchange: Exchange) -> None:
        """Begin the call that the exchange asks for. The response comes now or later."""
        try:
            principal = self._auth.principal(exchange.authorization)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        self.handle_of(principal, exchange)

    def handle_of(self, principal: Principal, exchange: Exchange, options: InvokeOptions | None = None) -> None:
        """Begin the call of this caller. The options are given if the head of the request is known."""
        try:
            limiter = principal.limiter
            connection = exchange.connection
            if connection is not None and connection.payer != limiter.tenant:
                self._connections.assign(connection, limiter.tenant)
            limiter.check()
            target = principal.targets.get(exchange.path) or self._resolve(principal, exchange.path)
            if options is None:
                options = self._options.get(exchange.query) or self._read_options(exchange.query)
            if options.timeout_s is not None:
                check_timeout(options.timeout_s, target.resolved.action.limits.timeout, self._settings)
            body = exchange.body
            pickled = False
            if len(body) > self._settings.payload_bytes:
                raise too_large("Request", len(body), self._settings.payload_bytes)
            if exchange.content_type not in _JSON_TYPES and body:
                pickled = _is_pickled(exchange.content_type, target)
            session = self._session(principal, options, exchange) if options.session or exchange.session else ""
            exchange.target = target
            exchange.limiter = limiter
            exchange.options = options
            if exchange.streams:
                exchange.open_stream(limiter.tenant)
            if isinstance(body, memoryview):
                self._spawn(self._handle_large(exchange, principal, body, session, pickled=pickled))
                return
            payload = body if pickled else target.parameters.merge(body)
        except (Refusal, CallRefusedError) as error:
            exchange.refuse(refusal_for(error))
            return
        self._begin(exchange, principal, payload, session, pickled=pickled)

    async def _handle_large(
        self, exchange: Exchange, principal: Principal, body: memoryview, session: str, *, pickled: bool
    ) -> None:
        """Check a large body in another process, so that the event loop is not blocked, and begin the call."""
        try:
            payload = body
            if not pickled:
                parameters = exchange.target.parameters
                payload = await parameters.merge_large(body, self._json_checker, principal.name)
        except CallRefusedError as error:
            exchange.refuse(refusal_for(error))
            return
        if not exchange.answered:  # otherwise the client has disconnected
            self._begin(exchange, principal, payload, session, pickled=pickled)

    def _begin(
        self, exchange: Exchange, principal: Principal, payload: bytes | memoryview, session: str, *, pickled: bool
    ) -> None:
        target, limiter, options = exchange.target, exchange.limiter, exchange.options
        shared = limits = None
        if exchange.limits is not None or target.limits is not None or (pickled and exchange.content_type != PICKLE):
            try:
                limits = limits_of(exchange.limits, target.limits)
                shared = self._shared_arguments(exchange, payload) if pickled else None
            except Refusal as refusal:
                exchange.refuse(refusal)
                return
        exchange.body = b""  # the call has it, and frees it earlier
        call = exchange.call = Call(
            self._ids(), principal.namespace, target.resolved, payload,
            pickled=pickled, transaction=exchange.transaction, session=session, shared=shared, done=exchange.done,
            trace=exchange.trace,
        )  # fmt: skip
        if exchange.began_s is not None:
            call.notes = _gateway_time(exchange.began_s)
        if limits is not None:
            call.objective = CallObjective(limits, declared=exchange.limits is None)
        try:
            limiter.begin(call)
        except CallRefusedError as error:
            exchange.drop_call()
            exchange.refuse(refusal_for(error))
            return
        if not options.blocking or exchange.followers:
            call.durable = True
            call.followers = exchange.followers
            self._spawn(self._accept(exchange))
            return
        try:
            self._platform.submit(call)
        except Exception as error:  # noqa: BLE001 - every error has a response
            self._fail(exchange, error)
            return
        if exchange.answered:
            return
        if options.timeout_s is None:
            exchange.waiting = self._waiting
            self._waiting.add(exchange)
        else:
            exchange.timer = asyncio.get_running_loop().call_later(options.timeout_s, self._expire, exchange)

    # --- parsing the request ------------------------------------------------------------------------------

    def _shared_arguments(self, exchange: Exchange, payload: bytes | memoryview) -> SharedArguments | None:
        content_type = exchange.content_type or b""
        if b"; " not in content_type:
            return None
        shared = shared_arguments(content_type, payload, self._buffers)
        durable = not exchange.options.blocking or exchange.followers
        if durable and shared.buffer is not None and shared.buffer.size > self._settings.payload_bytes:
            raise too_large("Request", shared.buffer.size, self._settings.payload_bytes)
        return shared

    def _resolve(self, principal: Principal, path: bytes) -> InvocationTarget:
        segments = path[len(PREFIX) :].split(b"/")
        if segments[1] == b"actions" and segments[3:] == [b""]:
            raise not_allowed(("GET",))  # `actions/package/` lists the package
        namespace = decoded(segments[0])
        names = [check_name(decoded(segment)) for segment in segments[2:]]
        if segments[1] != b"actions" or len(names) not in {1, 2}:
            raise not_found()
        if namespace == "_":
            namespace = principal.name
        check_namespace(namespace)
        try:
            resolved = self._catalogue.resolve_with_components(principal.name, FullName(namespace, "/".join(names)))
        except (WrongCollectionError, NotFoundError, AccessDeniedError) as error:
            raise refusal_for(error) from error
        target = InvocationTarget(resolved, self._metrics.of_action(principal.name, resolved.function))
        if len(path) <= _MAX_CACHED_KEY_BYTES:
            if len(principal.targets) >= _MAX_CACHED_ENTRIES:
                principal.targets.clear()
            principal.targets[path] = target
        return target

    def _session(self, principal: Principal, options: InvokeOptions, exchange: Exchange) -> str:
        named = [name for name in (options.session, (exchange.session or b"").decode("latin-1")) if name]
        if named[0] != named[-1]:
            raise Refusal(400, f"The query names session '{named[0]}', the header '{named[-1]}'; name one.")
        try:
            return self._sessions.find(principal.name, named[0]).session.id
        except SessionNotFoundError as error:
            raise Refusal(404, str(error)) from error

    def _read_options(self, query: bytes) -> InvokeOptions:
        options = invoke_options(query, self._settings)
        if len(query) <= _MAX_CACHED_KEY_BYTES and not options.session:  # there are too many sessions to cache
            if len(self._options) >= _MAX_CACHED_ENTRIES:
                self._options.clear()
            self._options[query] = options
        return options

    # --- callers that do not wait for the result ----------------------------------------------------------

    async def _accept(self, exchange: Exchange) -> None:
        try:
            await self._platform.accept(exchange.call)
        except Exception as error:  # noqa: BLE001 - every error has a response
            self._fail(exchange, error)
        else:
            exchange.acknowledge()

    def _expire(self, exchange: Exchange) -> None:
        exchange.stop_waiting()
        if not exchange.answered:
            self._spawn(self._detach(exchange))

    async def _detach(self, exchange: Exchange) -> None:
        if exchange.answered:
            return
        call = exchange.call
        try:
            await self._platform.detach(call)
        except Exception as error:  # noqa: BLE001 - every error has a response
            exchange.refuse(refusal_for(error), (b"x-openwhisk-activation-id", call.id.encode()))
        else:
            exchange.acknowledge()

    def _fail(self, exchange: Exchange, error: Exception) -> None:
        """Refuse a call that the platform has not taken. `done` will not be called for it."""
        exchange.limiter.end()
        if isinstance(error, NotPromisedError):
            exchange.target.metrics.count(exchange.call)
        exchange.drop_call()
        exchange.refuse(refusal_for(error))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _gateway_time(began_s: float) -> str:
    """Return the annotation with the milliseconds in which the request was read and checked, if there are any."""
    read_ms = round(1000 * (asyncio.get_running_loop().time() - began_s))
    return note("gatewayTime", read_ms) if read_ms else ""


def _is_pickled(content_type: bytes | None, target: InvocationTarget) -> bool:
    """Return whether the body is pickled, False if it is JSON. Raises a 415 for other types."""
    kind = (content_type or b"").split(b";")[0].strip().lower()
    if kind == b"application/json":
        return False
    if target.resolved.action.exec.kind == KERNEL:
        if kind != SAFETENSORS:
            raise Refusal(415, f"A call of a kernel graph is application/json or {SAFETENSORS.decode()}.")
        return True
    if kind != PICKLE:
        raise unsupported_media()
    if not target.sdk:
        raise Refusal(
            415, "Pickled arguments are for workflows and functions that the SDK deployed (annotation sdk: true)."
        )
    return True
