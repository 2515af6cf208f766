"""Handle /api/NAMESPACE/…: find the API's route, and call its web action on the owner's behalf."""

from aliquot.live.gateway.apis.registry import ApiRegistry
from aliquot.live.gateway.apis.routes import ApiPath
from aliquot.live.gateway.http.names import decoded
from aliquot.live.gateway.http.refusal import Refusal, not_allowed, not_found
from aliquot.live.gateway.web.handler import IncomingRequest, WebActions
from aliquot.live.gateway.web.responses import WebResponse
from aliquot.live.gateway.web.target import WebTargets

PREFIX = b"/api/"
_OWN = b"/api/v1"
_SECRET = b"x-require-whisk-auth"


def is_api(path: bytes) -> bool:
    """Return whether the path belongs to a namespace's API, not to the platform."""
    return path.startswith(PREFIX) and path != _OWN and not path.startswith(_OWN + b"/")


class ApiRoutes:
    """Handles requests for the API routes of all namespaces."""

    def __init__(self, apis: ApiRegistry, web: WebActions, targets: WebTargets) -> None:
        self._apis = apis
        self._web = web
        self._targets = targets

    async def handle(self, request: IncomingRequest) -> WebResponse:
        """Respond to a request below /api/. Raises a `Refusal`."""
        raw_namespace, _, rest = request.path[len(PREFIX) :].partition(b"/")
        try:
            namespace = decoded(raw_namespace)
            segments = tuple(decoded(segment) for segment in rest.strip(b"/").split(b"/")) if rest.strip(b"/") else ()
        except Refusal as refusal:
            raise not_found() from refusal
        routes = await self._apis.routes(namespace)
        found = routes.find(segments) if routes else None
        if found is None:
            raise not_found()
        path, names = found
        _set_cors(request, path)
        operation = path.operations.get(request.method)
        if operation is None:
            if request.method == "OPTIONS" and path.cors:
                return WebResponse(200, (), b"")
            raise not_allowed(path.operations)
        if operation.secret is not None:
            secret = operation.secret.encode()
            request.headers[_SECRET] = secret
            request.pairs = [pair for pair in request.pairs if pair[0] != _SECRET] + [(_SECRET, secret)]
        target = self._targets.of(namespace, operation.action, operation.extension)
        return await self._web.call(request, target, "/" + rest.decode("latin-1"), names)


def _set_cors(request: IncomingRequest, path: ApiPath) -> None:
    if not path.cors:
        request.cors = ()
        return
    methods = ", ".join(dict.fromkeys(("OPTIONS", *path.operations))).encode()
    name = b"access-control-allow-methods"
    request.cors = tuple((name, methods) if pair[0] == name else pair for pair in request.cors)
