"""Actions: create, update, read, list, delete."""

from typing import Annotated, Any

from msgspec import Meta

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.resolving import readable_package, resolve_action
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.action_entity import build, shown, shown_in_list
from aliquot.live.gateway.entities.common import OVERWRITE, PAGE, find, listed, name_of, replaced
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.responses import PICKLE
from aliquot.live.gateway.http.routing import (
    Access,
    Endpoint,
    Query,
    Request,
    Response,
    handled_elsewhere,
    json_response,
    read_json,
)
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.platform import Platform
from aliquot.live.store.records import Action, FullName, Package

_ALL = "/api/v1/namespaces/{namespace}/actions"
_ONE = _ALL + "/{name}"
_IN_PACKAGE = _ALL + "/{package}/"
_PACKAGED = _ALL + "/{package}/{name}"
_INVOKE = (
    Query("blocking", bool, "wait for the end"),
    Query("result", bool, "the result alone, not the record"),
    Query("timeout", Annotated[int, Meta(ge=1)], "wait at most so many milliseconds"),
    Query("session", str, "the session that it belongs to; the header X-Aliquot-Session does the same"),
)
_INVOKED = {200: Any, 202: wire.ActivationId, 500: Any, 502: Any}


class ActionEndpoints:
    def __init__(self, platform: Platform, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._platform = platform
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        code = Query("code", bool, "false leaves the code out")
        most = self._settings.entity_bytes
        items = list[wire.ActionItem] | wire.ActionCount
        item = {200: wire.ActionView}
        published = Access.PUBLISHED
        many = [
            Endpoint("GET", _ALL, self.list, "List actions", {200: items}, query=PAGE),
            Endpoint("GET", _IN_PACKAGE, self.list_package, "List the actions in a package", {200: items}, published,
                     query=PAGE, statuses=(404, 409)),
        ]  # fmt: skip
        for path, readable in ((_ONE, Access.NAMESPACE), (_PACKAGED, published)):
            many += [
                Endpoint("PUT", path, self.put, "Create or update an action", item, body=wire.ActionPut,
                         query=(OVERWRITE,), max_bytes=most, statuses=(404, 409, 413, 415)),
                Endpoint("POST", path, handled_elsewhere, "Invoke an action", _INVOKED, readable,
                         body=dict | None, query=_INVOKE, statuses=(404, 408, 409, 413, 415, 429),
                         also_takes=(PICKLE.decode(),), streams=True),
                Endpoint("GET", path, self.get, "Read an action", item, readable, query=(code,), statuses=(404, 409)),
                Endpoint("DELETE", path, self.delete, "Delete an action", item, statuses=(404, 409)),
            ]  # fmt: skip
        return many

    async def put(self, request: Request) -> Response:
        name = FullName(request.namespace, name_of(request))
        overwrite = flag(request.fields, "overwrite")
        put: wire.ActionPut = read_json(request.body or b"{}", wire.ActionPut)
        async with self._catalogue.writing(request.namespace):
            self._check_package(name)
            old = replaced(self._entities, Action, name.namespace, name.name, overwrite=overwrite)
            action = build(name, put, old, self._entities, self._settings, self._at_once(request))
            if (why := self._platform.misfit(action)) is not None:
                raise Refusal(400, why)
            action = await self._catalogue.put(action)
        return json_response(shown(action))

    async def get(self, request: Request) -> Response:
        code = flag(request.fields, "code", default=True)
        resolved = resolve_action(self._entities, request.namespace, FullName(request.named, name_of(request)))
        return json_response(shown(resolved.action, code=code))

    async def delete(self, request: Request) -> Response:
        name = FullName(request.namespace, name_of(request))
        async with self._catalogue.writing(request.namespace):
            self._check_package(name)
            action = find(self._entities, Action, name.namespace, name.name)
            await self._catalogue.delete(action)
        return json_response(shown(action))

    async def list(self, request: Request) -> Response:
        return listed(request, "actions", self._entities.all(Action, request.namespace), shown_in_list)

    async def list_package(self, request: Request) -> Response:
        """Of a binding: those of the package that it binds, as they are there."""
        name = FullName(request.named, name_of(request))
        provider = readable_package(self._entities, request.namespace, name, f"{name.namespace}/{name.name}")[0]
        contents = self._entities.contents(provider.namespace, provider.name)
        return listed(request, "actions", contents, shown_in_list)

    def _at_once(self, request: Request) -> int | None:
        assert request.principal is not None  # noqa: S101 - the endpoint asks for a key
        return request.principal.limiter.limits.concurrent_invocations

    def _check_package(self, name: FullName) -> None:
        """Nothing is written through a binding, nor into a package that is not there."""
        if name.package and find(self._entities, Package, name.namespace, name.package).binding is not None:
            raise Refusal(400, "Operation not permitted on package binding.")
