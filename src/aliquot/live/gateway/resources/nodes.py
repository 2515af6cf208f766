"""Endpoints for the operator's nodes: show, drain and remove them, and the token for machines that join."""

from collections.abc import Awaitable
from typing import Annotated, Any

from msgspec import Meta, Struct

from aliquot.core.units import KIB
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response, read_json
from aliquot.live.node.cluster import NodeAdministration, NodeConflictError, NodeItem, NodeToken
from aliquot.live.store.errors import NotFoundError

_ALL = "/operator/v1/nodes"
_ONE = _ALL + "/{name}"
NO_CLUSTER = "This server has no nodes but its own machine: `aliquot up --cluster` lets other machines join."


class NodeDrain(Struct, forbid_unknown_fields=True):
    """A request to drain a node. Without a deadline, calls that run there go on until they end."""

    deadline_s: Annotated[float, Meta(ge=0)] | None = None


class NodeEndpoints:
    """Handles requests about nodes. Without a cluster it refuses them."""

    def __init__(self, nodes: NodeAdministration | None) -> None:
        self._nodes = nodes

    def endpoints(self) -> list[Endpoint]:
        operator: dict[str, Any] = {"access": EndpointAccess.OPERATOR, "statuses": (404, 409)}
        item = {200: NodeItem}
        return [
            Endpoint("GET", _ALL, self.list, "All nodes of the cluster", {200: list[NodeItem]}, **operator),
            Endpoint("POST", _ALL + "/token", self.token, "The token for machines that join", {200: NodeToken},
                     **operator),
            Endpoint("PUT", _ALL + "/token", self.rotate, "Replace the token for machines that join",
                     {200: NodeToken}, **operator),
            Endpoint("GET", _ONE, self.get, "Read a node", item, **operator),
            Endpoint("POST", _ONE + "/drain", self.drain, "Give the node no more work", item, body=NodeDrain,
                     max_bytes=KIB, access=EndpointAccess.OPERATOR, statuses=(404, 408, 409, 413, 415)),
            Endpoint("POST", _ONE + "/undrain", self.undrain, "Give the node work again", item, **operator),
            Endpoint("DELETE", _ONE, self.remove, "Remove a node that runs nothing", item,
                     access=EndpointAccess.OPERATOR, statuses=(404, 409)),
            Endpoint("POST", _ONE + "/remove", self.force, "Remove a node with all that runs there", item, **operator),
        ]  # fmt: skip

    async def list(self, _: Request) -> Response:
        return json_response(self._cluster.list())

    async def get(self, request: Request) -> Response:
        return json_response(self._cluster.get(self._name(request)))

    async def drain(self, request: Request) -> Response:
        asked: NodeDrain = read_json(request.body or b"{}", NodeDrain)
        return await self._change(self._cluster.drain(self._name(request), asked.deadline_s))

    async def undrain(self, request: Request) -> Response:
        return await self._change(self._cluster.undrain(self._name(request)))

    async def remove(self, request: Request) -> Response:
        return await self._change(self._cluster.remove(self._name(request), force=False))

    async def force(self, request: Request) -> Response:
        return await self._change(self._cluster.remove(self._name(request), force=True))

    async def token(self, _: Request) -> Response:
        return json_response(self._cluster.token(rotate=False))

    async def rotate(self, _: Request) -> Response:
        return json_response(self._cluster.token(rotate=True))

    @staticmethod
    async def _change(change: Awaitable[NodeItem]) -> Response:
        try:
            return json_response(await change)
        except NodeConflictError as error:
            raise Refusal(409, f"{error}.") from error

    @property
    def _cluster(self) -> NodeAdministration:
        if self._nodes is None:
            raise Refusal(404, NO_CLUSTER)
        return self._nodes

    def _name(self, request: Request) -> str:
        name = request.names["name"]
        if all(node.name != name for node in self._cluster.list()):
            raise NotFoundError(name)
        return name
