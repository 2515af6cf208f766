"""Triggers: create, update, read, list, delete, fire. What a trigger's rules are is never stored with it."""

import os
from typing import Any

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.names import is_path
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import (
    OVERWRITE,
    PAGE,
    common,
    find,
    listed,
    name_of,
    parameters_of,
    replaced,
    shown_common,
    shown_pairs,
)
from aliquot.live.gateway.entities.rule_entity import path_of, status_of
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, Request, Response, json_response, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web.arguments import headers_of
from aliquot.live.store.records import Trigger
from aliquot.live.triggers.dispatcher import TriggerDispatcher

_ALL = "/api/v1/namespaces/{namespace}/triggers"
_ONE = _ALL + "/{name}"


class TriggerEndpoints:
    def __init__(self, catalogue: Catalogue, settings: GatewaySettings, firing: TriggerDispatcher) -> None:
        self._firing = firing
        self._catalogue = catalogue
        self._entities = catalogue.entities
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        items = list[wire.EntityView] | wire.TriggerCount
        fired = {202: wire.ActivationId, 204: None}
        item = {200: wire.TriggerView}
        return [
            Endpoint("GET", _ALL, self.list, "List triggers", {200: items}, query=PAGE),
            Endpoint("PUT", _ONE, self.put, "Create or update a trigger", item, body=wire.TriggerPut,
                     query=(OVERWRITE,), max_bytes=self._settings.pairs_bytes, statuses=(409, 413, 415)),
            Endpoint("GET", _ONE, self.get, "Read a trigger with its rules", item, statuses=(404, 409)),
            Endpoint("POST", _ONE, self.fire, "Fire a trigger", fired, body=dict[str, Any] | None,
                     max_bytes=self._settings.event_bytes, statuses=(404, 409, 413, 415, 429)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a trigger", item, statuses=(404, 409)),
        ]  # fmt: skip

    async def put(self, request: Request) -> Response:
        name = name_of(request)
        overwrite = flag(request.fields, "overwrite")
        put: wire.TriggerPut = read_json(request.body or b"{}", wire.TriggerPut)
        async with self._catalogue.writing(request.namespace):
            old = replaced(self._entities, Trigger, request.namespace, name, overwrite=overwrite)
            trigger = Trigger(
                namespace=request.namespace,
                name=name,
                identity=old.identity if old else os.urandom(8).hex(),
                parameters=parameters_of(put.parameters, old.parameters if old else (), self._settings),
                **common(put, old, self._settings),
            )
            _check_feed(trigger)
            await self._catalogue.put(trigger)
        return json_response(self._shown(trigger))

    async def get(self, request: Request) -> Response:
        return json_response(self._shown(self._find(request)))

    async def fire(self, request: Request) -> Response:
        """204 when nothing follows from it: then there is no record either."""
        assert request.principal is not None  # noqa: S101 - the endpoint asks for a key
        namespace = request.principal.namespace
        # The caller's key is for the gateway: the event is kept on disk, and goes to actions that may be another's.
        headers = headers_of(pair for pair in request.headers.items() if pair[0] != b"authorization")
        activation_id = await self._firing.fire(
            namespace, self._find(request), request.body, request.transaction, headers
        )
        if activation_id is None:
            return Response(204, b"", ())
        answer = json_response({"activationId": activation_id}, 202)
        return answer._replace(headers=(*answer.headers, (b"x-openwhisk-activation-id", activation_id.encode())))

    async def delete(self, request: Request) -> Response:
        async with self._catalogue.writing(request.namespace):
            trigger = self._find(request)
            shown = self._shown(trigger)
            await self._catalogue.delete(trigger)
        return json_response(shown)

    async def list(self, request: Request) -> Response:
        triggers = self._entities.all(Trigger, request.namespace)
        return listed(request, "triggers", triggers, lambda trigger: wire.EntityView(**shown_common(trigger)))

    def _find(self, request: Request) -> Trigger:
        return find(self._entities, Trigger, request.namespace, name_of(request))

    def _shown(self, trigger: Trigger) -> wire.TriggerView:
        """Rules that were made for an earlier trigger of its name are not its own."""
        rules = {
            f"{rule.namespace}/{rule.name}": wire.TriggerRuleView(path_of(rule.action), status_of(self._entities, rule))
            for rule in self._entities.rules_of(trigger)
            if rule.tied == trigger.identity
        }
        parameters = shown_pairs(trigger.parameters)
        return wire.TriggerView(
            **shown_common(trigger), parameters=parameters, limits=wire.TriggerLimitsView(), rules=rules
        )


def _check_feed(trigger: Trigger) -> None:
    feeds = [pair.value for pair in trigger.annotations if pair.key == "feed"]
    if feeds and not (isinstance(feeds[0], str) and is_path(feeds[0])):
        raise Refusal(400, "Feed name is not valid")
