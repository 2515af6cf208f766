"""Endpoints for the operator: namespaces with their weights, quotas and keys, and the platform's status."""

from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins
from msgspec.structs import replace

from aliquot.config import MAX_WEIGHT, MIN_WEIGHT
from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response, read_json
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.sessions.registry import SessionRegistry
from aliquot.live.node.cluster import NodeAdministration
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.operator_token import OperatorToken
from aliquot.live.store.records import Action, Namespace, Quota

_ALL = "/operator/v1/namespaces"
_ONE = _ALL + "/{name}"
# The limits are for the OpenAPI page only. The catalogue checks weights, with better messages.
_Weight: TypeAlias = Annotated[float, Meta(extra_json_schema={"minimum": MIN_WEIGHT, "maximum": MAX_WEIGHT})]


class NamespacePatch(Struct, rename="camel", forbid_unknown_fields=True):
    """Changes to a namespace. Absent fields keep their value, and null removes a quota."""

    weight: _Weight | UnsetType = UNSET
    invocations_per_minute: int | UnsetType | None = UNSET
    concurrent_invocations: int | UnsetType | None = UNSET
    fires_per_minute: int | UnsetType | None = UNSET
    kept_bytes: int | UnsetType | None = UNSET
    volume_bytes: int | UnsetType | None = UNSET


class NamespacePost(NamespacePatch, rename="camel", forbid_unknown_fields=True, kw_only=True):
    name: str


class KeyPost(Struct, forbid_unknown_fields=True):
    keep: bool = False  # existing keys stay valid


class NamespaceItem(Struct, rename="camel"):
    name: str
    weight: float
    invocations_per_minute: int | None
    concurrent_invocations: int | None
    fires_per_minute: int | None
    kept_bytes: int | None
    volume_bytes: int | None
    actions: int
    keys: list[str]  # the uuid of each key; secrets are not stored
    created: int


class NewKey(Struct):
    namespace: str
    key: str  # shown only once


class NewToken(Struct):
    token: str


class OperatorEndpoints:
    """Handles the operator's requests for namespaces, status and the operator's own token."""

    def __init__(
        self,
        platform: Platform,
        catalogue: Catalogue,
        sessions: SessionRegistry,
        token: OperatorToken,
        nodes: NodeAdministration | None = None,
    ) -> None:
        self._platform = platform
        self._catalogue = catalogue
        self._sessions = sessions
        self._token = token
        self._nodes = nodes

    def endpoints(self) -> list[Endpoint]:
        operator: dict[str, Any] = {"access": EndpointAccess.OPERATOR}
        named: dict[str, Any] = {**operator, "statuses": (404,)}
        body: dict[str, Any] = {"max_bytes": MIB, "access": EndpointAccess.OPERATOR}
        item = {200: NamespaceItem}
        return [
            Endpoint("GET", "/operator/v1/status", self.status, "Devices, flows, sandboxes", {200: dict}, **operator),
            Endpoint("POST", "/operator/v1/token", self.rotate_token, "Replace the operator's token", {201: NewToken},
                     **operator),
            Endpoint("GET", _ALL, self.list, "All namespaces", {200: list[NamespaceItem]}, **operator),
            Endpoint("POST", _ALL, self.create, "Create a namespace; its key is shown only once", {201: NewKey},
                     body=NamespacePost, statuses=(409, 413, 415), **body),
            Endpoint("GET", _ONE, self.get, "Read a namespace", item, **named),
            Endpoint("PATCH", _ONE, self.update, "Set weight and quotas", item, body=NamespacePatch,
                     statuses=(404, 413, 415), **body),
            Endpoint("DELETE", _ONE, self.delete, "Delete a namespace with everything in it", item, **named),
            Endpoint("POST", _ONE + "/keys", self.add_key, "Create a key, shown only once", {201: NewKey}, body=KeyPost,
                     statuses=(404, 413, 415), **body),
            Endpoint("DELETE", _ONE + "/keys/{uuid}", self.remove_key, "Delete a key", item, **named),
        ]  # fmt: skip

    async def status(self, _: Request) -> Response:
        status = self._platform.status()
        if self._nodes is not None:
            status["nodes"] = to_builtins(self._nodes.list())
        return json_response(status)

    async def rotate_token(self, _: Request) -> Response:
        return json_response(NewToken(self._token.rotate()), 201)

    async def list(self, _: Request) -> Response:
        return json_response([self._item(namespace) for namespace in self._catalogue.namespaces()])

    async def create(self, request: Request) -> Response:
        post: NamespacePost = read_json(request.body, NamespacePost)
        weight = 1 if post.weight is UNSET else post.weight
        key = await self._catalogue.create_namespace(post.name, weight=weight, quota=_quota(post, Quota()))
        return json_response(NewKey(post.name, key), 201)

    async def get(self, request: Request) -> Response:
        return json_response(self._item(self._find(request)))

    async def update(self, request: Request) -> Response:
        patch: NamespacePatch = read_json(request.body or b"{}", NamespacePatch)

        def change(old: Namespace) -> Namespace:
            weight = old.weight if patch.weight is UNSET else patch.weight
            return replace(old, weight=weight, quota=_quota(patch, old.quota))

        return json_response(self._item(await self._catalogue.update_namespace(self._find(request).name, change)))

    async def delete(self, request: Request) -> Response:
        item = self._item(self._find(request))
        await self._catalogue.delete_namespace(item.name)
        await self._sessions.end_all(item.name)
        return json_response(item)

    async def add_key(self, request: Request) -> Response:
        post: KeyPost = read_json(request.body or b"{}", KeyPost)
        name = self._find(request).name
        return json_response(NewKey(name, await self._catalogue.add_key(name, revoke_others=not post.keep)), 201)

    async def remove_key(self, request: Request) -> Response:
        name = self._find(request).name
        await self._catalogue.remove_key(name, request.names["uuid"])
        return json_response(self._item(self._find(request)))

    def _find(self, request: Request) -> Namespace:
        namespace = self._catalogue.namespace(request.names["name"])
        if namespace is None:
            raise NotFoundError(f"namespace {request.names['name']}")
        return namespace

    def _item(self, namespace: Namespace) -> NamespaceItem:
        return NamespaceItem(
            namespace.name,
            namespace.weight,
            namespace.quota.invocations_per_minute,
            namespace.quota.concurrent_invocations,
            namespace.quota.fires_per_minute,
            namespace.quota.kept_bytes,
            namespace.quota.volume_bytes,
            len(self._catalogue.entities.all(Action, namespace.name)),
            [key.uuid for key in namespace.keys],
            namespace.created,
        )


def _quota(patch: NamespacePatch, old: Quota) -> Quota:
    given = {field: getattr(patch, field) for field in Quota.__struct_fields__}
    return replace(old, **{field: bound for field, bound in given.items() if bound is not UNSET})
