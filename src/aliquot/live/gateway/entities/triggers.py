"""Endpoints for triggers: create, update, read, list, delete, fire. A trigger's rules are not stored with it."""

import os
from typing import Any

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.names import is_path
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
    pair_views,
    updated_parameters,
)
from aliquot.live.gateway.entities.rules import path_view, rule_status
from aliquot.live.gateway.http.asgi import headers_of
from aliquot.live.gateway.http.query import flag
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, Request, Response, json_response, read_json
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.trace_context import trace_of
from aliquot.live.store.records import Trigger
from aliquot.live.triggers.dispatcher import TriggerDispatcher

_ALL = "/api/v1/namespaces/{namespace}/triggers"
_ONE = _ALL + "/{name}"


class TriggerEndpoints:
    """Handles requests for triggers."""

    def __init__(self, catalogue: Catalogue, settings: GatewaySettings, dispatcher: TriggerDispatcher) -> None:
        self._dispatcher = dispatcher
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
            old = find_replaced(self._entities, Trigger, request.namespace, name, overwrite=overwrite)
            trigger = Trigger(
                namespace=request.namespace,
                name=name,
                identity=old.identity if old else os.urandom(8).hex(),
                parameters=updated_parameters(put.parameters, old.parameters if old else (), self._settings),
                **common_fields(put, old, self._settings),
            )
            _check_feed(trigger)
            await self._catalogue.put(trigger)
        return json_response(self._view(trigger))

    async def get(self, request: Request) -> Response:
        return json_response(self._view(self._find(request)))

    async def fire(self, request: Request) -> Response:
        """Fire the trigger. Responds with 204, and makes no record, if no rule is active."""
        assert request.principal is not None  # noqa: S101 - the endpoint requires a key
        namespace = request.principal.namespace
        # The caller's key is left out: the event is stored, and its rules may run actions of other namespaces.
        headers = headers_of(pair for pair in request.headers.items() if pair[0] != b"authorization")
        activation_id = await self._dispatcher.fire(
            namespace, self._find(request), request.body, request.transaction, headers, trace_of(request.headers)
        )
        if activation_id is None:
            return Response(204, b"", ())
        response = json_response({"activationId": activation_id}, 202)
        return response._replace(headers=(*response.headers, (b"x-openwhisk-activation-id", activation_id.encode())))

    async def delete(self, request: Request) -> Response:
        async with self._catalogue.writing(request.namespace):
            trigger = self._find(request)
            view = self._view(trigger)
            await self._catalogue.delete(trigger)
        return json_response(view)

    async def list(self, request: Request) -> Response:
        triggers = self._entities.all(Trigger, request.namespace)
        return list_response(
            request, "triggers", triggers, lambda trigger: wire.EntityView(**common_view_fields(trigger))
        )

    def _find(self, request: Request) -> Trigger:
        return find(self._entities, Trigger, request.namespace, name_of(request))

    def _view(self, trigger: Trigger) -> wire.TriggerView:
        """Return the trigger's view. Rules of an earlier trigger with the same name are left out."""
        rules = {
            f"{rule.namespace}/{rule.name}": wire.TriggerRuleView(
                path_view(rule.action), rule_status(self._entities, rule)
            )
            for rule in self._entities.rules_of(trigger)
            if rule.tied == trigger.identity
        }
        parameters = pair_views(trigger.parameters)
        return wire.TriggerView(
            **common_view_fields(trigger), parameters=parameters, limits=wire.TriggerLimitsView(), rules=rules
        )


def _check_feed(trigger: Trigger) -> None:
    feeds = [pair.value for pair in trigger.annotations if pair.key == "feed"]
    if feeds and not (isinstance(feeds[0], str) and is_path(feeds[0])):
        raise Refusal(400, "Feed name is not valid")
