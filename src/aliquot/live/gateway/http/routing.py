"""The table of endpoints. Routes other than invocations, web actions and APIs are matched and authorised here."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from starlette.routing import Route, Router

from aliquot.budgets import BudgetError, Reservation
from aliquot.core.units import KIB
from aliquot.live.gateway.http.asgi import BodyReader, Disconnected, Receive, Scope, Send, check_headers, send_response
from aliquot.live.gateway.http.auth import Auth, OperatorAuth, Principal
from aliquot.live.gateway.http.connections import OPERATOR, SCOPE_KEY, Connections
from aliquot.live.gateway.http.events import EventStream, ResponseLimits
from aliquot.live.gateway.http.names import check_name, check_namespace, decoded
from aliquot.live.gateway.http.query import fields_of
from aliquot.live.gateway.http.refusal import (
    Refusal,
    forbidden,
    malformed,
    not_allowed,
    not_found,
    refusal_for,
    unsupported_media,
)
from aliquot.live.gateway.http.responses import JSON, Body, Headers, size_of

_JSON_TYPE = b"application/json"
_ENTITY_METHODS = ("PUT", "POST", "DELETE")
_KEY, _SEVERAL_PARTS = "{key}", "{key:path}"  # keys of objects have slashes
_SMALL_BYTES = 64 * KIB  # a smaller response is not counted in its caller's memory


class Request:
    """A request as its endpoint's handler sees it."""

    def __init__(self, transaction: str, names: dict[str, str], headers: dict[bytes, bytes], query: bytes) -> None:
        self.transaction = transaction
        self.names = names  # from the path
        self.headers = headers
        self.fields = fields_of(query) if query else {}
        self.body = b""
        self.receive: Receive | None = None  # of an endpoint that takes its body itself
        self.principal: Principal | None = None
        self.named = ""  # the namespace in the path; not the caller's only where `EndpointAccess.PUBLISHED` allows it

    @property
    def namespace(self) -> str:
        """The caller's namespace."""
        assert self.principal is not None  # noqa: S101 - the endpoint requires a key
        return self.principal.name

    @property
    def owner(self) -> str:
        """The owner of the records that the caller may see."""
        assert self.principal is not None  # noqa: S101 - the endpoint requires a key
        return self.principal.namespace.owner


class Response(NamedTuple):
    """A handler's response, with JSON as the default content type."""

    status: int
    body: Body
    headers: Headers = (JSON,)
    events: EventStream | None = None  # sent instead of the body
    reserved: Reservation | None = None  # the body's part of the namespace's memory
    on_disk: bool = False  # the body is a mapped file, and takes no memory


def json_response(value: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(value))


class EndpointAccess(StrEnum):
    """The credentials that an endpoint requires."""

    ANYONE = "anyone"
    NAMESPACE = "namespace"  # a namespace's key, for that namespace only
    PUBLISHED = "published"  # any key; the handler checks what the caller may read in `Request.named`
    OBSERVER = "observer"  # a namespace's key, for its own part; or the operator's token, for all: no `principal`
    OPERATOR = "operator"


class Query(NamedTuple):
    """A query parameter, as the OpenAPI page describes it."""

    name: str
    kind: Any
    text: str


Handler = Callable[[Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """A method of a path, with its handler and its description for the OpenAPI page."""

    method: str
    path: str  # with parameters in braces
    handler: Handler
    summary: str
    responses: dict[int, Any]  # body types by status; None: no JSON
    access: EndpointAccess = EndpointAccess.NAMESPACE
    body: Any = None
    query: tuple[Query, ...] = ()
    max_bytes: int = 0  # limit on the body
    statuses: tuple[int, ...] = ()  # refusals in addition to those that every endpoint has
    also_takes: tuple[str, ...] = ()  # media types in addition to JSON
    streams: bool = False  # a 200 may be a stream of events
    any_status: bool = False  # the function may choose any other status
    raw: bool = False  # the handler takes the body itself, of any media type


async def handled_elsewhere(_: Request) -> Response:
    """Stand in for a handler where `app.py` routes the request elsewhere. The table lists it for OpenAPI and 405s."""
    raise not_found()


def make_router(
    endpoints: list[Endpoint],
    auth: Auth,
    operator: OperatorAuth,
    bodies: BodyReader,
    connections: Connections,
    responses: ResponseLimits,
) -> Router:
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        at = by_path.setdefault(endpoint.path, {})
        if endpoint.method in at:
            raise ValueError(f"{endpoint.method} {endpoint.path} is listed twice")
        at[endpoint.method] = endpoint
    routes = []
    for path in list(by_path):
        if not path.endswith("/"):  # a trailing slash makes no difference, unless the table has that path, too
            by_path.setdefault(f"{path}/", by_path[path])
    for path, methods in by_path.items():
        routes.append(
            Route(
                path.replace(_KEY, _SEVERAL_PARTS),
                _EndpointRoute(methods, auth, operator, bodies, connections, responses),
            )
        )
    return Router(routes, redirect_slashes=False, default=_not_found)


async def _not_found(scope: Scope, _: Receive, send: Send) -> None:
    refusal, transaction = not_found(), scope["transaction"]
    headers = (JSON, (b"x-request-id", transaction.encode()))
    await send_response(send, refusal.status, headers, refusal.body(transaction))


class _EndpointRoute:
    """The methods of one path, as an ASGI application."""

    def __init__(
        self,
        methods: dict[str, Endpoint],
        auth: Auth,
        operator: OperatorAuth,
        bodies: BodyReader,
        connections: Connections,
        responses: ResponseLimits,
    ) -> None:
        self._methods = methods
        self._responses = responses
        self._connections = connections
        self._auth = auth
        self._operator = operator
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transaction: str = scope["transaction"]
        try:
            response = await self._respond(scope, receive, transaction)
        except Disconnected:
            return
        except Exception as error:  # noqa: BLE001 - every error has a response
            refusal = refusal_for(error)
            response = Response(refusal.status, refusal.body(transaction), (JSON, *refusal.headers))
        request_id = (b"x-request-id", transaction.encode())
        if response.events is not None and scope["method"] != "HEAD":
            await response.events.send(receive, send, (request_id,))
            return
        await send_response(send, response.status, (*response.headers, request_id), response.body)

    async def _respond(self, scope: Scope, receive: Receive, transaction: str) -> Response:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        endpoint = self._methods.get(method)
        if method == "OPTIONS":
            return Response(200, b"")
        if endpoint is None:
            # With a slash at its end a path names a collection, and these methods are for what is in it.
            empty_name = scope["path"].endswith("/") and scope["path"] != "/" and method in _ENTITY_METHODS
            raise not_found() if empty_name else not_allowed(self._methods)
        headers = dict(scope["headers"])
        check_headers(scope["headers"], headers)
        names = {key: decoded(value.encode("latin-1")) for key, value in scope["path_params"].items()}
        request = Request(transaction, names, headers, scope["query_string"])
        self._check_access(endpoint.access, request)
        tenant = OPERATOR if request.principal is None else request.principal.name
        if endpoint.access is not EndpointAccess.ANYONE:
            self._connections.assign(scope.get(SCOPE_KEY), tenant)
        if endpoint.body is not None:
            request.body = await self._bodies.read(headers, receive, endpoint.max_bytes, tenant)
            kind = headers.get(b"content-type", _JSON_TYPE).split(b";")[0].strip().lower()
            takes = (_JSON_TYPE, *(each.encode() for each in endpoint.also_takes))
            if kind not in takes and (request.body or method == "PUT"):
                raise unsupported_media()
        request.receive = receive if endpoint.raw else None
        response = await endpoint.handler(request)
        if size_of(response.body) <= _SMALL_BYTES or response.on_disk:
            return response
        try:
            return response._replace(reserved=self._responses.reserve(tenant, response.body))
        except BudgetError as error:
            raise Refusal(429, str(error)) from error

    def _check_access(self, access: EndpointAccess, request: Request) -> None:
        """Find out who asks. Raises a 401 or 403 if the caller may not."""
        credentials = request.headers.get(b"authorization")
        if access is EndpointAccess.OPERATOR:
            self._operator.check(credentials)
        elif access is EndpointAccess.OBSERVER and self._operator.is_right(credentials):
            return
        elif access is not EndpointAccess.ANYONE:
            self._authorise(request, foreign=access is EndpointAccess.PUBLISHED)

    def _authorise(self, request: Request, *, foreign: bool) -> None:
        principal = request.principal = self._auth.principal(request.headers.get(b"authorization"))
        namespace = request.names.pop("namespace", "_")
        request.named = principal.name if namespace == "_" else check_namespace(namespace)
        if request.named != principal.name and not foreign:
            for name in request.names.values():
                check_name(name)
            raise forbidden("/".join([namespace, *request.names.values()]))


def read_json(body: bytes, kind: type[Any]) -> Any:  # noqa: ANN401 - an instance of `kind`
    """Decode a JSON body as this type. Raises a 400 that says where it is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(str(error)) from error
    except RecursionError as error:
        raise malformed("JSON is nested too deeply") from error
