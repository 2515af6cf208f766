"""Web actions as an ASGI application: who may call, what the call gets, and what goes back."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import NamedTuple

import msgspec
from msgspec import Struct

from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.gateway.http.asgi import BodyReader, Disconnected, Receive, RequestIds, Scope, Send, check_headers
from aliquot.live.gateway.http.auth import Auth
from aliquot.live.gateway.http.refusal import Refusal, error_body, refusal_for, unauthenticated, unsupported_media
from aliquot.live.gateway.http.responses import JSON, Headers, pieces_of
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web import media
from aliquot.live.gateway.web.allowance import AnonymousBodyLimit
from aliquot.live.gateway.web.arguments import WebRequest
from aliquot.live.gateway.web.payloads import payload_of
from aliquot.live.gateway.web.responses import NOT_READY, WebResponse, web_response
from aliquot.live.gateway.web.running import WebActionRunner
from aliquot.live.gateway.web.target import WebPath, WebTarget, WebTargets

METHODS = "GET, DELETE, POST, PUT, HEAD, OPTIONS, PATCH"
_METHODS = frozenset(METHODS.split(", "))
_ALLOW_METHODS = (b"access-control-allow-methods", b"OPTIONS, GET, DELETE, POST, PUT, HEAD, PATCH")
_ALLOW_ORIGIN = (b"access-control-allow-origin", b"*")
_USUAL_HEADERS = b"Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent"
_NO_LENGTH = frozenset([204, 304])


class HttpRequest(Struct):
    """A request whose body has not been read yet."""

    method: str
    path: bytes  # raw
    query: bytes
    pairs: list[tuple[bytes, bytes]]
    headers: dict[bytes, bytes]
    scheme: str
    transaction: str
    receive: Receive
    cors: Headers  # what an answer carries for browsers, unless the action or the route says otherwise

    @staticmethod
    def of(scope: Scope, receive: Receive, transaction: str) -> "HttpRequest":
        headers = dict(scope["headers"])
        asked_for = headers.get(b"access-control-request-headers", _USUAL_HEADERS)
        cors = (_ALLOW_ORIGIN, _ALLOW_METHODS, (b"access-control-allow-headers", asked_for))
        path, query, pairs = scope["raw_path"], scope["query_string"], scope["headers"]
        scheme = scope.get("scheme", "http")
        return HttpRequest(scope["method"], path, query, pairs, headers, scheme, transaction, receive, cors)


BuiltinHandler = Callable[[HttpRequest, str, WebRequest], Awaitable[WebResponse]]  # whose key came with it


class BuiltinAction(NamedTuple):
    method: str  # the only one: a page elsewhere must not make a browser that knows a key do more than look
    handler: BuiltinHandler


class WebActions:
    """Those of the namespaces, and `natives`: what the platform itself answers at such a path, to whoever has a key."""

    def __init__(
        self,
        targets: WebTargets,
        runner: WebActionRunner,
        auth: Auth,
        bodies: BodyReader,
        json_checker: JsonChecker,
        settings: GatewaySettings,
    ) -> None:
        self._targets = targets
        self._runner = runner
        self._auth = auth
        self._bodies = bodies
        self._json_checker = json_checker
        self._settings = settings
        self._strangers_bytes = min(settings.web_payload_bytes, settings.payload_bytes)
        self._allowance = AnonymousBodyLimit(self._strangers_bytes)
        self.natives: Mapping[str, BuiltinAction] = {}  # by namespace, package and name

    async def handle(self, asked: HttpRequest) -> WebResponse:
        """Raises a `Refusal`."""
        if asked.method not in _METHODS:
            raise Refusal(
                405, f"HTTP method not allowed, supported methods: {METHODS}", ((b"allow", METHODS.encode()),)
            )
        try:
            path = WebPath(asked.path)
        except Refusal:
            if asked.method == "OPTIONS":
                return WebResponse(200, (), b"")
            raise
        native = self.natives.get(f"{path.namespace}/{path.package}/{path.leaf}")
        if native is None:
            return await self.call(asked, self._targets.of(path.namespace, path.full_name, path.extension), path.rest)
        if asked.method == "OPTIONS":
            return WebResponse(200, (), b"")
        user = self._user(asked)
        if user is None:
            raise unauthenticated()
        if asked.method != native.method:
            allow = (b"allow", native.method.encode())
            raise Refusal(405, f"HTTP method not allowed, supported methods: {native.method}", (allow,))
        request = self._request(asked, path.rest, user, {})
        body = await self._bodies.read(asked.headers, asked.receive, self._settings.pairs_bytes)
        if body and not media.is_json(request.content_type):
            raise unsupported_media()
        return await native.handler(asked, user, msgspec.structs.replace(request, body=body))

    async def call(
        self, asked: HttpRequest, target: WebTarget, rest: str, named: Mapping[str, str] | None = None
    ) -> WebResponse:
        """Run it, and show its result. Raises a `Refusal`."""
        preflight = asked.method == "OPTIONS"
        if target.custom_options:
            asked.cors = ()
        elif preflight:
            return WebResponse(200, (), b"")
        user = self._user(asked)
        if not preflight and not target.admits(user, asked.headers.get(b"x-require-whisk-auth")):
            raise unauthenticated()
        max_bytes = self._strangers_bytes if user is None else self._settings.payload_bytes
        with self._allowance.taken(asked.headers) if user is None else nullcontext():
            request = self._request(asked, rest, user, named or {})
            body = await self._bodies.read_large(asked.headers, asked.receive, max_bytes)
            payload = await payload_of(request, body, target, self._json_checker)
            call = await self._runner.run(target, payload, asked.transaction)
        activation = (b"x-openwhisk-activation-id", call.id.encode())
        if call.outcome is None:
            return WebResponse(202, (JSON, activation), error_body(NOT_READY, asked.transaction))
        try:
            shown = web_response(call.outcome, target.extension)
        except Refusal as refusal:
            raise Refusal(refusal.status, refusal.text, (*refusal.headers, activation)) from refusal
        return shown._replace(headers=(*shown.headers, activation))

    def _user(self, asked: HttpRequest) -> str | None:
        """Whose key came along; one that does not open anything makes nobody of the caller."""
        try:
            return self._auth.principal(asked.headers.get(b"authorization")).name
        except Refusal:
            return None

    def _request(self, asked: HttpRequest, rest: str, user: str | None, named: Mapping[str, str]) -> WebRequest:
        """All but its body."""
        check_headers(asked.pairs, asked.headers)
        pairs = asked.pairs
        if user is not None:  # the key is the platform's and its owner's: an action is told who, not how
            pairs = [pair for pair in pairs if pair[0] != b"authorization"]
        content_type = asked.headers.get(b"content-type")
        return WebRequest(asked.method, tuple(pairs), rest, asked.query, b"", content_type, user, named)


class WebRoute:
    """Whatever gives web answers, as an ASGI application; `transaction` comes with the scope."""

    def __init__(self, source: Callable[[HttpRequest], Awaitable[WebResponse]], transactions: RequestIds) -> None:
        self._source = source
        self._transactions = transactions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transaction = self._transactions.of(dict(scope["headers"]).get(b"x-request-id"))
        asked = HttpRequest.of(scope, receive, transaction)
        try:
            given = await self._source(asked)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it has an answer
            refusal = refusal_for(error)
            given = WebResponse(refusal.status, (JSON, *refusal.headers), refusal.body(transaction))
        said = {name for name, _ in given.headers}
        headers = [*given.headers, *(pair for pair in asked.cors if pair[0] not in said)]
        headers.append((b"x-request-id", transaction.encode()))
        if given.status not in _NO_LENGTH:
            headers.append((b"content-length", b"%d" % len(given.body)))
        await send({"type": "http.response.start", "status": given.status, "headers": headers})
        *ahead, last = pieces_of(given.body)
        for piece in ahead:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": last})
