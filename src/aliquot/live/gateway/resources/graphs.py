"""Pictures of workflows and of their executions, as SVG."""

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.http.names import check_activation_id, check_name
from aliquot.live.gateway.http.refusal import Refusal, not_found
from aliquot.live.gateway.http.routing import Endpoint, Request, Response
from aliquot.live.invocations.workflows.control import ExecutionControl
from aliquot.live.invocations.workflows.workflows import Workflows
from aliquot.live.store.base import Store
from aliquot.live.store.records import FullName

_BASE = "/api/v1/namespaces/{namespace}"
SVG = (
    (b"content-type", b"image/svg+xml; charset=utf-8"),
    # A browser that opens the picture runs nothing, whatever the names of states are.
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
TOO_LARGE = "The graph is too large for a picture. `aliquot workflow graph` draws it as text."


class GraphEndpoints:
    """Handles requests for pictures. Workers draw them, beside the event loop."""

    def __init__(self, workflows: Workflows, store: Store, catalogue: Catalogue) -> None:
        self._expressions = workflows.expressions
        self._control = ExecutionControl(workflows, store)
        self._catalogue = catalogue

    def endpoints(self) -> list[Endpoint]:
        picture = {200: None}
        definitions = [
            Endpoint("GET", path, self.definition, "Draw a workflow", picture, statuses=(404, 409, 413))
            for path in (_BASE + "/workflows/{name}/graph", _BASE + "/workflows/{package}/{name}/graph")
        ]
        path = _BASE + "/executions/{id}/graph"
        execution = Endpoint("GET", path, self.execution, "Draw an execution", picture, statuses=(404, 413))
        return [*definitions, execution]

    async def definition(self, request: Request) -> Response:
        name = "/".join(check_name(name) for name in request.names.values())
        resolved = self._catalogue.resolve(request.namespace, FullName(request.namespace, name))
        if not resolved.workflow:
            raise Refusal(409, f"The action '{resolved.function}' is no workflow.")
        text = resolved.action.exec.code.encode()
        return _picture(await self._expressions.draw(request.owner, text, {}, resolved.function))

    async def execution(self, request: Request) -> Response:
        svg = await self._control.drawn(request.owner, check_activation_id(request.names["id"]))
        if svg is None:
            raise not_found()
        return _picture(svg)


def _picture(svg: bytes) -> Response:
    if not svg:
        raise Refusal(413, TOO_LARGE)
    return Response(200, svg, SVG)
