"""Endpoints for the operator's models of demand: show versions, train, choose one, roll back."""

import asyncio
from collections.abc import Callable
from typing import Any

from aliquot.core.units import MIB
from aliquot.learn.version_choice import BEST, ModelError
from aliquot.live.forecasting.host import ForecasterProcess
from aliquot.live.forecasting.models import DemandModels, DemandModelsState
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response, read_json
from aliquot.live.gateway.resources.models import UsePost

_ALL = "/operator/v1/models/demand"
_WITHOUT = "this server makes no forecasts; start it with --provisioning forecast or reactive"


class DemandModelEndpoints:
    """Handles requests for models of demand. The registry's files are read in threads."""

    def __init__(self, forecaster: ForecasterProcess | None) -> None:
        self._models = None if forecaster is None else forecaster.models

    def endpoints(self) -> list[Endpoint]:
        shown: dict[str, Any] = {
            "responses": {200: DemandModelsState},
            "access": EndpointAccess.OPERATOR,
            "statuses": (409,),
        }
        begun = {**shown, "responses": {202: DemandModelsState}}
        posted = {**shown, "body": UsePost, "max_bytes": MIB, "statuses": (408, 409, 413, 415)}
        return [
            Endpoint("GET", _ALL, self.show, "The versions of forecasts, and the state of a training", **shown),
            Endpoint("POST", _ALL + "/train", self.train, "Start a training from the profiles", **begun),
            Endpoint("POST", _ALL + "/use", self.use, "Choose the version that forecasts, or its forecaster", **posted),
            Endpoint("POST", _ALL + "/rollback", self.roll_back, "Return to the previous version", **shown),
        ]

    async def show(self, _: Request) -> Response:
        return await self._respond(DemandModels.state)

    async def train(self, _: Request) -> Response:
        return await self._respond(DemandModels.train, 202)

    async def use(self, request: Request) -> Response:
        post: UsePost = read_json(request.body or b"{}", UsePost)
        version = BEST if post.version == "auto" else post.version
        return await self._respond(lambda models: models.use(version, post.predictor))

    async def roll_back(self, _: Request) -> Response:
        return await self._respond(DemandModels.roll_back)

    async def _respond(self, ask: Callable[[DemandModels], DemandModelsState], status: int = 200) -> Response:
        if self._models is None:
            raise Refusal(409, _WITHOUT)
        try:
            return json_response(await asyncio.to_thread(ask, self._models), status)
        except ModelError as error:
            raise Refusal(409, str(error)) from error
