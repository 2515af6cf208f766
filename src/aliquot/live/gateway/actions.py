"""Actions: create, update, read, list, delete."""

from typing import Annotated, Any

from msgspec import Meta

from aliquot.live.catalogue import Catalogue
from aliquot.live.gateway import wire
from aliquot.live.gateway.action_entity import build, shown, shown_in_list
from aliquot.live.gateway.answers import PICKLE
from aliquot.live.gateway.names import check_name
from aliquot.live.gateway.query import flag, page_of
from aliquot.live.gateway.refusal import EXISTS, Refusal, not_found
from aliquot.live.gateway.routing import Answer, Asked, Endpoint, Query, json, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.platform import Platform
from aliquot.live.records import Action

_ALL = "/api/v1/namespaces/{namespace}/actions"
_ONE = _ALL + "/{name}"
_PACKAGED = _ALL + "/{package}/{name}"
PAGE = (
    Query("limit", Annotated[int, Meta(ge=0, le=200)], "at most so many, 0 to 200; 0 stands for 200"),
    Query("skip", Annotated[int, Meta(ge=0)], "leave out the first so many"),
    Query("count", bool, "only how many there are"),
)
_INVOKE = (
    Query("blocking", bool, "wait for the end"),
    Query("result", bool, "the result alone, not the record"),
    Query("timeout", Annotated[int, Meta(ge=1)], "wait at most so many milliseconds"),
)
_INVOKED = {200: Any, 202: wire.ActivationId, 500: Any, 502: Any}


class Actions:
    def __init__(self, platform: Platform, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._platform = platform
        self._catalogue = catalogue
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        overwrite = Query("overwrite", bool, "update it if it is there")
        code = Query("code", bool, "false leaves the code out")
        most = self._settings.entity_bytes
        listed = list[wire.ActionItem] | wire.ActionCount
        many = [Endpoint("GET", _ALL, self.list, "List actions", {200: listed}, query=PAGE)]
        for path in (_ONE, _PACKAGED):
            many += [
                Endpoint("PUT", path, self.put, "Create or update an action", {200: wire.Action}, body=wire.ActionPut,
                         query=(overwrite,), most_bytes=most, statuses=(404, 409, 413, 415)),
                Endpoint("POST", path, self.invoked_elsewhere, "Invoke an action", _INVOKED, body=dict, query=_INVOKE,
                         statuses=(404, 408, 413, 415, 429), also_takes=(PICKLE.decode(),)),
                Endpoint("GET", path, self.get, "Read an action", {200: wire.Action}, query=(code,), statuses=(404,)),
                Endpoint("DELETE", path, self.delete, "Delete an action", {200: wire.Action}, statuses=(404,)),
            ]  # fmt: skip
        return many

    async def put(self, asked: Asked) -> Answer:
        name = _name(asked)
        overwrite = flag(asked.fields, "overwrite")
        put: wire.ActionPut = read_json(asked.body or b"{}", wire.ActionPut)
        if "/" in name:
            raise not_found()  # there are no packages yet
        async with self._catalogue.writing(asked.namespace):
            old = self._catalogue.entities.one(Action, asked.namespace, name)
            if old is not None and not overwrite:
                raise Refusal(409, EXISTS)
            action = build(asked.namespace, name, put, old, self._settings)
            if (why := self._platform.misfit(action)) is not None:
                raise Refusal(400, why)
            action = await self._catalogue.put(action)
        return json(shown(action))

    async def invoked_elsewhere(self, _: Asked) -> Answer:
        """`Invoke` answers before a request comes here; the table has it for its page and for the methods allowed."""
        raise not_found()

    async def get(self, asked: Asked) -> Answer:
        code = flag(asked.fields, "code", default=True)
        return json(shown(self._find(asked), code=code))

    async def delete(self, asked: Asked) -> Answer:
        async with self._catalogue.writing(asked.namespace):
            action = self._find(asked)
            await self._catalogue.delete(action)
        return json(shown(action))

    async def list(self, asked: Asked) -> Answer:
        page = page_of(asked.fields, "actions")
        actions = self._catalogue.entities.all(Action, asked.namespace)
        if page.count:
            return json({"actions": max(0, len(actions) - page.skip)})
        newest = sorted(actions, key=lambda action: (-action.updated, action.name))
        return json([shown_in_list(action) for action in newest[page.skip : page.skip + page.limit]])

    def _find(self, asked: Asked) -> Action:
        action = self._catalogue.entities.one(Action, asked.namespace, _name(asked))
        if action is None:
            raise not_found()
        return action


def _name(asked: Asked) -> str:
    """`name`, or `package/name`."""
    return "/".join(check_name(name) for name in asked.names.values())
