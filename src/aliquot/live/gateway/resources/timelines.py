"""Endpoints that tell why a call waited: its life in pieces, each with its cause."""

import msgspec

from aliquot.clock import now_ms
from aliquot.live.gateway.http.names import check_activation_id
from aliquot.live.gateway.http.query import epoch
from aliquot.live.gateway.http.refusal import Refusal, not_found
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Query, Request, Response
from aliquot.live.history.questions import HistoryBusyError, HistoryQuestions
from aliquot.live.history.reading import HistoryMissingError
from aliquot.live.history.records import CallTimeline, for_tenant
from aliquot.live.invocations.platform import Platform

_OWN = "/api/v1/observe/activations/{id}/timeline"
_ALL = "/operator/v1/activations/{id}/timeline"
_NEAR = Query("near", int, "when the call arrived, in milliseconds since the epoch; now, if it is not given")
_OPERATOR = "the operator"


class TimelineEndpoints:
    """Handles requests for timelines. A namespace sees its own calls, and other tenants' functions without names."""

    def __init__(self, platform: Platform, questions: HistoryQuestions) -> None:
        self._platform = platform
        self._questions = questions

    def endpoints(self) -> list[Endpoint]:
        told = {200: CallTimeline}
        return [
            Endpoint("GET", _OWN, self.own, "Tell why a call waited", told, statuses=(404, 429)),
            Endpoint(
                "GET", _ALL, self.any, "Tell why a call of any namespace waited", told, EndpointAccess.OPERATOR,
                query=(_NEAR,), statuses=(404, 429),
            ),
        ]  # fmt: skip

    async def own(self, request: Request) -> Response:
        activation_id = check_activation_id(request.names["id"])
        record = await self._platform.activation(request.owner, activation_id)
        if record is None and not self._platform.is_open(request.owner, activation_id):
            raise not_found()
        near_ms = now_ms() if record is None else record.start
        timeline = await self._ask(activation_id, near_ms, request.namespace)
        if timeline.namespace != request.namespace:
            raise not_found()
        return Response(200, msgspec.json.encode(for_tenant(timeline, request.namespace)))

    async def any(self, request: Request) -> Response:
        near_ms = epoch(request.fields, "near")
        activation_id = check_activation_id(request.names["id"])
        timeline = await self._ask(activation_id, now_ms() if near_ms is None else near_ms, _OPERATOR)
        return Response(200, msgspec.json.encode(timeline))

    async def _ask(self, activation_id: str, near_ms: int, tenant: str) -> CallTimeline:
        try:
            return await self._questions.timeline(activation_id, near_ms, tenant)
        except HistoryMissingError as error:
            raise Refusal(404, f"The history of {activation_id} cannot be told: {error}.") from error
        except HistoryBusyError as error:
            raise Refusal(429, f"{error}.") from error
