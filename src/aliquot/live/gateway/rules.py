"""Rules: create, update, switch on and off, read, list, delete."""

from msgspec.structs import replace

from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway import wire
from aliquot.live.gateway.entity import OVERWRITE, PAGE, find, listed, name_of, replaced
from aliquot.live.gateway.query import flag
from aliquot.live.gateway.refusal import Refusal
from aliquot.live.gateway.routing import Answer, Asked, Endpoint, json, read_json
from aliquot.live.gateway.rule_entity import build, shown, shown_in_list, status_of
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.records import FullName, Rule, Trigger

_ALL = "/api/v1/namespaces/{namespace}/rules"
_ONE = _ALL + "/{name}"


class Rules:
    def __init__(self, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        items = list[wire.RuleItem] | wire.RuleCount
        item = {200: wire.Rule}
        return [
            Endpoint("GET", _ALL, self.list, "List rules", {200: items}, query=PAGE),
            Endpoint("PUT", _ONE, self.put, "Create or update a rule", item, body=wire.RulePut, query=(OVERWRITE,),
                     most_bytes=self._settings.pairs_bytes, statuses=(409, 413, 415)),
            Endpoint("POST", _ONE, self.switch, "Switch a rule on or off", item, body=wire.StatusPost, most_bytes=MIB,
                     statuses=(404, 409, 413, 415)),
            Endpoint("GET", _ONE, self.get, "Read a rule", item, statuses=(404, 409)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a rule", item, statuses=(404, 409)),
        ]  # fmt: skip

    async def put(self, asked: Asked) -> Answer:
        name = FullName(asked.namespace, name_of(asked))
        overwrite = flag(asked.fields, "overwrite")
        put: wire.RulePut = read_json(asked.body or b"{}", wire.RulePut)
        async with self._catalogue.writing(asked.namespace):
            old = replaced(self._entities, Rule, asked.namespace, name.name, overwrite=overwrite)
            rule = build(name, put, old, self._entities, self._settings)
            await self._catalogue.put(rule)
        return json(self._shown(rule))

    async def switch(self, asked: Asked) -> Answer:
        post: wire.StatusPost = read_json(asked.body, wire.StatusPost)
        active = post.status == "active"
        async with self._catalogue.writing(asked.namespace):
            rule = self._find(asked)
            if active != self._entities.is_active(rule):
                rule = replace(rule, active=active, tied=self._trigger_of(rule).identity)
                await self._catalogue.put(rule)
        return json(self._shown(rule))

    async def get(self, asked: Asked) -> Answer:
        return json(self._shown(self._find(asked)))

    async def delete(self, asked: Asked) -> Answer:
        async with self._catalogue.writing(asked.namespace):
            rule = self._find(asked)
            await self._catalogue.delete(rule)
        return json(shown(rule, "inactive"))

    async def list(self, asked: Asked) -> Answer:
        return listed(asked, "rules", self._entities.all(Rule, asked.namespace), shown_in_list)

    def _find(self, asked: Asked) -> Rule:
        return find(self._entities, Rule, asked.namespace, name_of(asked))

    def _trigger_of(self, rule: Rule) -> Trigger:
        trigger = self._entities.one(Trigger, rule.trigger.namespace, rule.trigger.name)
        if trigger is None:
            raise Refusal(404, "Only rules with existing triggers can be activated")
        return trigger

    def _shown(self, rule: Rule) -> wire.Rule:
        return shown(rule, status_of(self._entities, rule))
