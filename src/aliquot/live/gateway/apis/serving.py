"""/api/NAMESPACE/…: the routes of a namespace's APIs, each answered by its web action on the owner's behalf."""

from aliquot.live.gateway.apis.registry import ApiRegistry
from aliquot.live.gateway.apis.routes import ApiPath
from aliquot.live.gateway.http.names import decoded
from aliquot.live.gateway.http.refusal import Refusal, not_found
from aliquot.live.gateway.web.handler import HttpRequest, WebActions
from aliquot.live.gateway.web.responses import WebResponse
from aliquot.live.gateway.web.target import WebTargets

PREFIX = b"/api/"
_OWN = b"/api/v1"
_SECRET = b"x-require-whisk-auth"


def is_api(path: bytes) -> bool:
    """Whether it is a namespace's, not the platform's own."""
    return path.startswith(PREFIX) and path != _OWN and not path.startswith(_OWN + b"/")


class ApiRoutes:
    def __init__(self, apis: ApiRegistry, web: WebActions, targets: WebTargets) -> None:
        self._apis = apis
        self._web = web
        self._targets = targets

    async def answer(self, asked: HttpRequest) -> WebResponse:
        """Raises a `Refusal`."""
        raw_namespace, _, rest = asked.path[len(PREFIX) :].partition(b"/")
        try:
            namespace = decoded(raw_namespace)
            segments = tuple(decoded(segment) for segment in rest.strip(b"/").split(b"/")) if rest.strip(b"/") else ()
        except Refusal as refusal:
            raise not_found() from refusal
        routes = await self._apis.routes(namespace)
        found = routes.find(segments) if routes else None
        if found is None:
            raise not_found()
        place, names = found
        _set_cors(asked, place)
        operation = place.operations.get(asked.method)
        if operation is None:
            if asked.method == "OPTIONS" and place.cors:
                return WebResponse(200, (), b"")
            methods = ", ".join(place.operations)
            allow = (b"allow", methods.encode())
            raise Refusal(405, f"HTTP method not allowed, supported methods: {methods}", (allow,))
        if operation.secret is not None:
            secret = operation.secret.encode()
            asked.headers[_SECRET] = secret
            asked.pairs = [pair for pair in asked.pairs if pair[0] != _SECRET] + [(_SECRET, secret)]
        target = self._targets.of(namespace, operation.action, operation.extension)
        path = "/" + rest.decode("latin-1")
        return await self._web.call(asked, target, path, names)


def _set_cors(asked: HttpRequest, place: ApiPath) -> None:
    if not place.cors:
        asked.cors = ()
        return
    methods = ", ".join(dict.fromkeys(("OPTIONS", *place.operations))).encode()
    name = b"access-control-allow-methods"
    asked.cors = tuple((name, methods) if pair[0] == name else pair for pair in asked.cors)
