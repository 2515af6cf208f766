"""Handle web actions: check the caller, run the action, and turn its result into an HTTP response."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import NamedTuple

import msgspec
from msgspec import Struct

from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.gateway.http.asgi import (
    BodyReader,
    Disconnected,
    Receive,
    RequestIds,
    Scope,
    Send,
    check_headers,
)
from aliquot.live.gateway.http.auth import Auth
from aliquot.live.gateway.http.connections import ANONYMOUS, SCOPE_KEY, Connection, Connections
from aliquot.live.gateway.http.refusal import (
    Refusal,
    error_body,
    not_acceptable,
    not_allowed,
    refusal_for,
    unauthenticated,
    unsupported_media,
)
from aliquot.live.gateway.http.responses import JSON, Headers, pieces_of
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web import media
from aliquot.live.gateway.web.arguments import WebRequest
from aliquot.live.gateway.web.payloads import payload_of
from aliquot.live.gateway.web.responses import NOT_READY, WebResponse, web_response
from aliquot.live.gateway.web.running import AnonymousBodyLimit, WebActionRunner
from aliquot.live.gateway.web.target import WebPath, WebTarget, WebTargets
from aliquot.live.invocations.trace_context import trace_of

METHODS = ("GET", "DELETE", "POST", "PUT", "HEAD", "OPTIONS", "PATCH")
_ALLOW_METHODS = (b"access-control-allow-methods", b"OPTIONS, GET, DELETE, POST, PUT, HEAD, PATCH")
_ALLOW_ORIGIN = (b"access-control-allow-origin", b"*")
_DEFAULT_ALLOW_HEADERS = b"Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent"
_NO_LENGTH = frozenset([204, 304])
_SUCCESSFUL = range(200, 300)


class IncomingRequest(Struct):
    """A request whose body has not been read yet."""

    method: str
    path: bytes  # raw
    query: bytes
    pairs: list[tuple[bytes, bytes]]  # headers as they came
    headers: dict[bytes, bytes]
    scheme: str
    transaction: str
    receive: Receive
    connection: Connection | None
    cors: Headers  # added to the response, unless the action sets them; a route may change them

    @staticmethod
    def of(scope: Scope, receive: Receive, transaction: str) -> "IncomingRequest":
        headers = dict(scope["headers"])
        allow_headers = headers.get(b"access-control-request-headers", _DEFAULT_ALLOW_HEADERS)
        cors = (_ALLOW_ORIGIN, _ALLOW_METHODS, (b"access-control-allow-headers", allow_headers))
        path, query, pairs = scope["raw_path"], scope["query_string"], scope["headers"]
        scheme, connection = scope.get("scheme", "http"), scope.get(SCOPE_KEY)
        return IncomingRequest(
            scope["method"], path, query, pairs, headers, scheme, transaction, receive, connection, cors
        )


BuiltinHandler = Callable[[IncomingRequest, str, WebRequest], Awaitable[WebResponse]]  # with the caller's namespace


class BuiltinAction(NamedTuple):
    """A web action that the platform itself implements, for callers with a key."""

    method: str  # the only one that is allowed: another site's page must not make a browser with a key change anything
    handler: BuiltinHandler


class WebActions:
    """Handles requests for web actions."""

    def __init__(
        self,
        targets: WebTargets,
        runner: WebActionRunner,
        auth: Auth,
        bodies: BodyReader,
        json_checker: JsonChecker,
        settings: GatewaySettings,
        builtins: Mapping[str, BuiltinAction],
        connections: Connections,
    ) -> None:
        """`builtins` are named by namespace, package and action."""
        self._targets = targets
        self._runner = runner
        self._auth = auth
        self._bodies = bodies
        self._json_checker = json_checker
        self._settings = settings
        self._builtins = builtins
        self._connections = connections
        self._anonymous_bytes = min(settings.web_payload_bytes, settings.payload_bytes)
        self._anonymous_limit = AnonymousBodyLimit(self._anonymous_bytes)

    async def handle(self, request: IncomingRequest) -> WebResponse:
        """Respond to a request below /api/v1/web/. Raises a `Refusal`."""
        if request.method not in METHODS:
            raise not_allowed(METHODS)
        try:
            path = WebPath(request.path)
        except Refusal:
            if request.method == "OPTIONS":
                return WebResponse(200, (), b"")
            raise
        builtin = self._builtins.get(f"{path.namespace}/{path.package}/{path.leaf}")
        if builtin is not None:
            return await self._handle_builtin(builtin, request, path)
        target = self._targets.of(path.namespace, path.full_name, path.extension)
        return await self.call(request, target, path.rest)

    async def _handle_builtin(self, builtin: BuiltinAction, request: IncomingRequest, path: WebPath) -> WebResponse:
        if request.method == "OPTIONS":
            return WebResponse(200, (), b"")
        user = self._user(request)
        if user is None:
            raise unauthenticated()
        if request.method != builtin.method:
            raise not_allowed((builtin.method,))
        self._connections.assign(request.connection, user)
        web_request = self._web_request(request, path.rest, user, {})
        body = await self._bodies.read(request.headers, request.receive, self._settings.pairs_bytes, user)
        if body and not media.is_json(web_request.content_type):
            raise unsupported_media()
        return await builtin.handler(request, user, msgspec.structs.replace(web_request, body=body))

    async def call(
        self, request: IncomingRequest, target: WebTarget, rest: str, named: Mapping[str, str] | None = None
    ) -> WebResponse:
        """Run the action and return its response. Raises a `Refusal`.

        `rest` is the path behind the action's name, and `named` are the parts of it that an API route names.
        """
        preflight = request.method == "OPTIONS"
        if target.custom_options:
            request.cors = ()
        elif preflight:
            return WebResponse(200, (), b"")
        user = self._user(request)
        if not preflight and not target.admits(user, request.headers.get(b"x-require-whisk-auth")):
            raise unauthenticated()
        max_bytes = self._anonymous_bytes if user is None else self._settings.payload_bytes
        payer = user or ANONYMOUS.format(target.owner.name)
        self._connections.assign(request.connection, payer)
        with self._anonymous_limit.reserve(payer, request.headers) if user is None else nullcontext():
            web_request = self._web_request(request, rest, user, named or {})
            body = await self._bodies.read_large(request.headers, request.receive, max_bytes, payer)
            payload = await payload_of(web_request, body, target, self._json_checker, payer)
            call = await self._runner.run(target, payload, request.transaction, trace_of(request.headers))
        activation = (b"x-openwhisk-activation-id", call.id.encode())
        if call.outcome is None:
            return WebResponse(202, (JSON, activation), error_body(NOT_READY, request.transaction))
        try:
            response = web_response(call.outcome, target.extension)
            _check_accepted(response, request.headers.get(b"accept"))
        except Refusal as refusal:
            raise Refusal(refusal.status, refusal.text, (*refusal.headers, activation)) from refusal
        return response._replace(headers=(*response.headers, activation))

    def _user(self, request: IncomingRequest) -> str | None:
        """Return the namespace of the caller's key, or None without a valid key."""
        try:
            return self._auth.principal(request.headers.get(b"authorization")).name
        except Refusal:
            return None

    def _web_request(
        self, request: IncomingRequest, rest: str, user: str | None, named: Mapping[str, str]
    ) -> WebRequest:
        """Return the request for the action, without its body."""
        check_headers(request.pairs, request.headers)
        pairs = request.pairs
        if user is not None:  # an action learns who calls, but not the caller's key
            pairs = [pair for pair in pairs if pair[0] != b"authorization"]
        content_type = request.headers.get(b"content-type")
        return WebRequest(request.method, tuple(pairs), rest, request.query, b"", content_type, user, named)


def _check_accepted(response: WebResponse, accept: bytes | None) -> None:
    """Raise a 406 if the client does not accept the type of a successful response."""
    if accept is None or not response.body or response.status not in _SUCCESSFUL:
        return
    content_type = dict(response.headers).get(b"content-type", b"").decode("latin-1")
    if not media.AcceptedTypes(accept).admit(content_type):
        raise not_acceptable(content_type)


class WebRoute:
    """A handler of web requests as an ASGI application."""

    def __init__(self, handle: Callable[[IncomingRequest], Awaitable[WebResponse]], request_ids: RequestIds) -> None:
        self._handle = handle
        self._request_ids = request_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transaction = self._request_ids.of(dict(scope["headers"]).get(b"x-request-id"))
        request = IncomingRequest.of(scope, receive, transaction)
        try:
            response = await self._handle(request)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - every error has a response
            refusal = refusal_for(error)
            response = WebResponse(refusal.status, (JSON, *refusal.headers), refusal.body(transaction))
        given = {name for name, _ in response.headers}
        headers = [*response.headers, *(pair for pair in request.cors if pair[0] not in given)]
        headers.append((b"x-request-id", transaction.encode()))
        if response.status not in _NO_LENGTH:
            headers.append((b"content-length", b"%d" % len(response.body)))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        *ahead, last = pieces_of(response.body)
        for piece in ahead:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": last})
