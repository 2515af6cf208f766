"""Endpoints for rules: create, update, switch on and off, read, list, delete."""

from msgspec.structs import replace

from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.resolving import resolve_action
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import (
    OVERWRITE,
    PAGE,
    common_fields,
    common_view_fields,
    find,
    find_replaced,
    list_response,
    name_of,
)
from aliquot.live.gateway.http.names import read_full_name
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal, forbidden
from aliquot.live.gateway.http.routing import Endpoint, Request, Response, json_response, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.errors import NotFoundError
from aliquot.live.store.records import FullName, Rule, Trigger

_ALL = "/api/v1/namespaces/{namespace}/rules"
_ONE = _ALL + "/{name}"


class RuleEndpoints:
    """Handles requests for rules."""

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
                     max_bytes=self._settings.pairs_bytes, statuses=(409, 413, 415, 429)),
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
            old = find_replaced(self._entities, Rule, request.namespace, name.name, overwrite=overwrite)
            rule = build_rule(name, put, old, self._entities, self._settings)
            self._check_number(rule, old)
            await self._catalogue.put(rule)
        return json_response(self._view(rule))

    def _check_number(self, rule: Rule, old: Rule | None) -> None:
        """Raise a 429 if the namespace or the trigger has as many rules as it may. An event starts a call for each."""
        if old is None:
            count, allowed = len(self._entities.all(Rule, rule.namespace)), self._settings.rules_per_namespace
            if count >= allowed:
                raise Refusal(429, f"Too many rules in the namespace (count: {count}, allowed: {allowed}).")
        if old is None or old.trigger != rule.trigger:
            count, allowed = self._entities.count_rules(rule.trigger), self._settings.rules_per_trigger
            if count >= allowed:
                raise Refusal(429, f"Too many rules of trigger {rule.trigger} (count: {count}, allowed: {allowed}).")

    async def switch(self, request: Request) -> Response:
        post: wire.StatusPost = read_json(request.body, wire.StatusPost)
        active = post.status == "active"
        async with self._catalogue.writing(request.namespace):
            rule = self._find(request)
            if active != self._entities.is_active(rule):
                rule = replace(rule, active=active, tied=self._trigger_of(rule).identity)
                await self._catalogue.put(rule)
        return json_response(self._view(rule))

    async def get(self, request: Request) -> Response:
        return json_response(self._view(self._find(request)))

    async def delete(self, request: Request) -> Response:
        async with self._catalogue.writing(request.namespace):
            rule = self._find(request)
            await self._catalogue.delete(rule)
        return json_response(rule_view(rule, "inactive"))

    async def list(self, request: Request) -> Response:
        return list_response(request, "rules", self._entities.all(Rule, request.namespace), rule_item)

    def _find(self, request: Request) -> Rule:
        return find(self._entities, Rule, request.namespace, name_of(request))

    def _trigger_of(self, rule: Rule) -> Trigger:
        trigger = self._entities.one(Trigger, rule.trigger.namespace, rule.trigger.name)
        if trigger is None:
            raise Refusal(404, "Only rules with existing triggers can be activated")
        return trigger

    def _view(self, rule: Rule) -> wire.RuleView:
        return rule_view(rule, rule_status(self._entities, rule))


def build_rule(
    name: FullName, put: wire.RulePut, old: Rule | None, entities: Entities, settings: GatewaySettings
) -> Rule:
    """Return the rule after the PUT. A new rule is active, an updated one keeps its status.

    Raises a `Refusal`, or `AccessDeniedError`.
    """
    caller = name.namespace
    trigger = _named(put.trigger, caller) or (old.trigger if old else None)
    action = _named(put.action, caller) or (old.action if old else None)
    if trigger is None or action is None:
        raise Refusal(400, "rule requires a valid trigger and a valid action")
    if trigger.namespace != caller:
        raise forbidden(f"{trigger.namespace}/{trigger.name}")
    found = entities.one(Trigger, trigger.namespace, trigger.name)
    if found is None:
        raise Refusal(400, f"trigger {trigger} does not exist")
    try:
        resolve_action(entities, caller, action)
    except NotFoundError as error:
        raise Refusal(400, f"action {action} does not exist") from error
    return Rule(
        namespace=caller,
        name=name.name,
        trigger=trigger,
        action=action,
        active=old is None or entities.is_active(old),
        tied=found.identity,
        **common_fields(put, old, settings),
    )


def _named(given: str | wire.PathPut | None, caller: str) -> FullName | None:
    if given is None:
        return None
    return read_full_name(given if isinstance(given, str) else f"{given.path}/{given.name}", caller)


# --- views ---------------------------------------------------------------------------------------------------


def rule_view(rule: Rule, status: wire.RuleStatus) -> wire.RuleView:
    return wire.RuleView(
        **common_view_fields(rule), trigger=path_view(rule.trigger), action=path_view(rule.action), status=status
    )


def rule_item(rule: Rule) -> wire.RuleItem:
    return wire.RuleItem(**common_view_fields(rule), trigger=path_view(rule.trigger), action=path_view(rule.action))


def path_view(name: FullName) -> wire.PathView:
    return wire.PathView(name.path, name.leaf)


def rule_status(entities: Entities, rule: Rule) -> wire.RuleStatus:
    return "active" if entities.is_active(rule) else "inactive"
