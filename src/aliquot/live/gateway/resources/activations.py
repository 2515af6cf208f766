"""Endpoints for activations: list, read, follow, cancel."""

from aliquot.live.catalogue.names import is_name
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.common import PAGE
from aliquot.live.gateway.http.events import END, EventStream, ResponseLimits, wants_events
from aliquot.live.gateway.http.names import check_activation_id
from aliquot.live.gateway.http.query import epoch, flag, page_of
from aliquot.live.gateway.http.refusal import Refusal, malformed_query, not_found
from aliquot.live.gateway.http.responses import (
    JSON,
    PICKLE,
    SAFETENSORS,
    failure_of,
    parts_of,
    record_body,
    response_body,
    status_of,
)
from aliquot.live.gateway.http.routing import Endpoint, Query, Request, Response, json_response
from aliquot.live.invocations.platform import Platform
from aliquot.live.store.base import ActivationQuery, Store
from aliquot.live.store.records import Activation

_ALL = "/api/v1/namespaces/{namespace}/activations"
_ONE = _ALL + "/{id}"
_RESULT = Query("result", bool, "end a stream of events with the result alone, not the record")
_FILTERS = (
    Query("name", str, "the action's name: a or pkg/a"),
    Query("since", int, "earliest start, in milliseconds since the epoch"),
    Query("upto", int, "latest start, in milliseconds since the epoch"),
    Query("docs", bool, "respond with full records"),
    Query("session", str, "the session's id"),
)


class ActivationEndpoints:
    """Handles requests for activations."""

    def __init__(self, platform: Platform, store: Store, responses: ResponseLimits) -> None:
        self._platform = platform
        self._store = store
        self._responses = responses

    def endpoints(self) -> list[Endpoint]:
        listed = list[wire.ActivationItem] | wire.ActivationCount
        return [
            Endpoint("GET", _ALL, self.list, "List activations", {200: listed}, query=PAGE + _FILTERS),
            Endpoint(
                "GET",
                _ONE,
                self.get,
                "Read an activation",
                {200: wire.ActivationView, 204: None},
                statuses=(404,),
                query=(_RESULT,),
                streams=True,
            ),
            Endpoint(
                "DELETE", _ONE, self.cancel, "Cancel a running activation", {202: wire.ActivationId}, statuses=(404,)
            ),
            Endpoint(
                "GET", _ONE + "/logs", self.logs, "Read an activation's logs", {200: wire.LogsView}, statuses=(404,)
            ),
            Endpoint(
                "GET",
                _ONE + "/result",
                self.result,
                "Read an activation's result",
                {200: wire.ResponseView},
                statuses=(404,),
            ),
        ]

    async def get(self, request: Request) -> Response:
        bare = flag(request.fields, "result")  # checked even if it has no effect
        if wants_events(request.headers.get(b"accept")):
            return await self._follow(request, bare=bare)
        activation = await self._find(request)
        return Response(200, record_body(activation, logs=activation.logs))

    async def _follow(self, request: Request, *, bare: bool) -> Response:
        activation_id = check_activation_id(request.names["id"])
        last_id = request.headers.get(b"last-event-id", b"")
        events = EventStream(self._responses, request.transaction, bare=bare, last_id=last_id)
        events.open(request.namespace)
        if not self._platform.follow(request.owner, activation_id, events):
            activation = await self._find(request)
            if last_id == END:  # a 204 keeps browsers from reconnecting
                return Response(204, b"")
            events.result(activation)
        return Response(200, b"", events=events)

    async def cancel(self, request: Request) -> Response:
        """Cancel a run. One that has already ended is no error, because the caller cannot know."""
        activation_id = check_activation_id(request.names["id"])
        if not self._platform.cancel(request.owner, activation_id):
            await self._find(request)
        return json_response({"activationId": activation_id}, 202)

    async def logs(self, request: Request) -> Response:
        activation = await self._find(request)
        return Response(200, b'{"logs":' + activation.logs + b"}")

    async def result(self, request: Request) -> Response:
        activation = await self._find(request)
        accepted = request.headers.get(b"accept")
        if accepted not in (PICKLE, SAFETENSORS):
            return Response(200, response_body(activation))
        status = (b"x-aliquot-status", b"%d" % status_of(activation))
        more = (status, (b"x-openwhisk-activation-id", activation.id.encode()))
        if activation.pickled is None:  # the run ended without a pickled result
            failure = failure_of(activation)
            told = ((b"x-aliquot-failure", failure.encode()),) if failure else ()
            return Response(200, response_body(activation), (JSON, *more, *told))
        return Response(200, activation.pickled, ((b"content-type", accepted), *more))

    async def list(self, request: Request) -> Response:
        page = page_of(request.fields, "activations")
        docs = flag(request.fields, "docs")
        if page.count and docs:
            raise Refusal(400, "The parameter 'docs' is not permitted with 'count'.")
        query = ActivationQuery(
            request.owner,
            _name(request.fields.get("name", "")),
            epoch(request.fields, "since"),
            epoch(request.fields, "upto"),
            page.skip,
            page.limit,
            request.fields.get("session") or None,
            summaries=not docs,
        )
        if page.count:
            return json_response({"activations": await self._store.count_activations(query)})
        found = await self._store.activations(query)
        if not docs:
            return Response(200, b"[" + b",".join([one.summary for one in found]) + b"]")
        parts: list[bytes | memoryview] = [b"["]
        for number, one in enumerate(found):
            parts += [b"," if number else b"", *parts_of(record_body(one, logs=one.logs))]
        return Response(200, [*parts, b"]"])  # not joined, because a page may be large

    async def _find(self, request: Request) -> Activation:
        activation_id = check_activation_id(request.names["id"])
        activation = await self._platform.activation(request.owner, activation_id)
        if activation is None:
            raise not_found()
        return activation


def _name(text: str) -> str | None:
    if not text.strip():
        return None
    parts = [part for part in text.split("/") if part]
    if not 0 < len(parts) <= 2 or not all(map(is_name, parts)):  # noqa: PLR2004 - package and name
        raise malformed_query("name", f"Parameter may be a 'simple' name or 'package-name/simple' name: {text}")
    return "/".join(parts)
