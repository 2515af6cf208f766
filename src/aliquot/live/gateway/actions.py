"""Actions: create, update, read, list, delete."""

from typing import Annotated, Any

from msgspec import Meta

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.resolving import readable_package, resolve_action
from aliquot.live.gateway import wire
from aliquot.live.gateway.action_entity import build, shown, shown_in_list
from aliquot.live.gateway.answers import PICKLE
from aliquot.live.gateway.entity import OVERWRITE, PAGE, find, listed, name_of, replaced
from aliquot.live.gateway.query import flag
from aliquot.live.gateway.refusal import Refusal
from aliquot.live.gateway.routing import Access, Answer, Asked, Endpoint, Query, answered_elsewhere, json, read_json
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


class Actions:
    def __init__(self, platform: Platform, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._platform = platform
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        code = Query("code", bool, "false leaves the code out")
        most = self._settings.entity_bytes
        items = list[wire.ActionItem] | wire.ActionCount
        item = {200: wire.Action}
        published = Access.PUBLISHED
        many = [
            Endpoint("GET", _ALL, self.list, "List actions", {200: items}, query=PAGE),
            Endpoint("GET", _IN_PACKAGE, self.list_package, "List the actions in a package", {200: items}, published,
                     query=PAGE, statuses=(404, 409)),
        ]  # fmt: skip
        for path, readable in ((_ONE, Access.NAMESPACE), (_PACKAGED, published)):
            many += [
                Endpoint("PUT", path, self.put, "Create or update an action", item, body=wire.ActionPut,
                         query=(OVERWRITE,), most_bytes=most, statuses=(404, 409, 413, 415)),
                Endpoint("POST", path, answered_elsewhere, "Invoke an action", _INVOKED, readable,
                         body=dict | None, query=_INVOKE, statuses=(404, 408, 409, 413, 415, 429),
                         also_takes=(PICKLE.decode(),), streams=True),
                Endpoint("GET", path, self.get, "Read an action", item, readable, query=(code,), statuses=(404, 409)),
                Endpoint("DELETE", path, self.delete, "Delete an action", item, statuses=(404, 409)),
            ]  # fmt: skip
        return many

    async def put(self, asked: Asked) -> Answer:
        name = FullName(asked.namespace, name_of(asked))
        overwrite = flag(asked.fields, "overwrite")
        put: wire.ActionPut = read_json(asked.body or b"{}", wire.ActionPut)
        async with self._catalogue.writing(asked.namespace):
            self._check_package(name)
            old = replaced(self._entities, Action, name.namespace, name.name, overwrite=overwrite)
            action = build(name, put, old, self._entities, self._settings, self._at_once(asked))
            if (why := self._platform.misfit(action)) is not None:
                raise Refusal(400, why)
            action = await self._catalogue.put(action)
        return json(shown(action))

    async def get(self, asked: Asked) -> Answer:
        code = flag(asked.fields, "code", default=True)
        resolved = resolve_action(self._entities, asked.namespace, FullName(asked.named, name_of(asked)))
        return json(shown(resolved.action, code=code))

    async def delete(self, asked: Asked) -> Answer:
        name = FullName(asked.namespace, name_of(asked))
        async with self._catalogue.writing(asked.namespace):
            self._check_package(name)
            action = find(self._entities, Action, name.namespace, name.name)
            await self._catalogue.delete(action)
        return json(shown(action))

    async def list(self, asked: Asked) -> Answer:
        return listed(asked, "actions", self._entities.all(Action, asked.namespace), shown_in_list)

    async def list_package(self, asked: Asked) -> Answer:
        """Of a binding: those of the package that it binds, as they are there."""
        name = FullName(asked.named, name_of(asked))
        provider = readable_package(self._entities, asked.namespace, name, f"{name.namespace}/{name.name}")[0]
        contents = self._entities.contents(provider.namespace, provider.name)
        return listed(asked, "actions", contents, shown_in_list)

    def _at_once(self, asked: Asked) -> int | None:
        assert asked.principal is not None  # noqa: S101 - the endpoint asks for a key
        return asked.principal.limiter.limits.concurrent_invocations

    def _check_package(self, name: FullName) -> None:
        """Nothing is written through a binding, nor into a package that is not there."""
        if name.package and find(self._entities, Package, name.namespace, name.package).binding is not None:
            raise Refusal(400, "Operation not permitted on package binding.")
