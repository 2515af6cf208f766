"""Rules: create, update, switch on and off, read, list, delete."""

from msgspec.structs import replace

from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import OVERWRITE, PAGE, find, listed, name_of, replaced
from aliquot.live.gateway.entities.rule_entity import build, shown, shown_in_list, status_of
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, Request, Response, json_response, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.records import FullName, Rule, Trigger

_ALL = "/api/v1/namespaces/{namespace}/rules"
_ONE = _ALL + "/{name}"


class RuleEndpoints:
    def __init__(self, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        items = list[wire.RuleItem] | wire.RuleCount
        item = {200: wire.RuleView}
        return [
            Endpoint("GET", _ALL, self.list, "List rules", {200: items}, query=PAGE),
            Endpoint("PUT", _ONE, self.put, "Create or update a rule", item, body=wire.RulePut, query=(OVERWRITE,),
                     max_bytes=self._settings.pairs_bytes, statuses=(409, 413, 415)),
            Endpoint("POST", _ONE, self.switch, "Switch a rule on or off", item, body=wire.StatusPost, max_bytes=MIB,
                     statuses=(404, 409, 413, 415)),
            Endpoint("GET", _ONE, self.get, "Read a rule", item, statuses=(404, 409)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a rule", item, statuses=(404, 409)),
        ]  # fmt: skip

    async def put(self, request: Request) -> Response:
        name = FullName(request.namespace, name_of(request))
        overwrite = flag(request.fields, "overwrite")
        put: wire.RulePut = read_json(request.body or b"{}", wire.RulePut)
        async with self._catalogue.writing(request.namespace):
            old = replaced(self._entities, Rule, request.namespace, name.name, overwrite=overwrite)
            rule = build(name, put, old, self._entities, self._settings)
            await self._catalogue.put(rule)
        return json_response(self._shown(rule))

    async def switch(self, request: Request) -> Response:
        post: wire.StatusPost = read_json(request.body, wire.StatusPost)
        active = post.status == "active"
        async with self._catalogue.writing(request.namespace):
            rule = self._find(request)
            if active != self._entities.is_active(rule):
                rule = replace(rule, active=active, tied=self._trigger_of(rule).identity)
                await self._catalogue.put(rule)
        return json_response(self._shown(rule))

    async def get(self, request: Request) -> Response:
        return json_response(self._shown(self._find(request)))

    async def delete(self, request: Request) -> Response:
        async with self._catalogue.writing(request.namespace):
            rule = self._find(request)
            await self._catalogue.delete(rule)
        return json_response(shown(rule, "inactive"))

    async def list(self, request: Request) -> Response:
        return listed(request, "rules", self._entities.all(Rule, request.namespace), shown_in_list)

    def _find(self, request: Request) -> Rule:
        return find(self._entities, Rule, request.namespace, name_of(request))

    def _trigger_of(self, rule: Rule) -> Trigger:
        trigger = self._entities.one(Trigger, rule.trigger.namespace, rule.trigger.name)
        if trigger is None:
            raise Refusal(404, "Only rules with existing triggers can be activated")
        return trigger

    def _shown(self, rule: Rule) -> wire.RuleView:
        return shown(rule, status_of(self._entities, rule))
