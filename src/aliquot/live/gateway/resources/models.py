"""Endpoints for the operator's prediction models: show versions, train, choose one, roll back."""

from collections.abc import Awaitable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from aliquot.core.units import MIB
from aliquot.learn.version_choice import BEST
from aliquot.live.datasets.agent_requests import AgentError, AgentLostError
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response, read_json
from aliquot.storage.models import ModelsState

_ALL = "/operator/v1/models"


class UsePost(Struct, forbid_unknown_fields=True):
    """The version that is to serve, and its predictor. Without either, the best model serves."""

    version: Annotated[int, Meta(ge=1)] | Literal["auto"] | None = None  # `auto`: the best version
    predictor: str | None = None  # `auto`: the version's best predictor


class ModelEndpoints:
    """Handles requests for prediction models."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def endpoints(self) -> list[Endpoint]:
        shown: dict[str, Any] = {
            "responses": {200: ModelsState},
            "access": EndpointAccess.OPERATOR,
            "statuses": (409, 503),
        }
        begun = {**shown, "responses": {202: ModelsState}}
        posted = {**shown, "body": UsePost, "max_bytes": MIB, "statuses": (408, 409, 413, 415, 503)}
        return [
            Endpoint("GET", _ALL, self.show, "The model's versions, and the state of a training", **shown),
            Endpoint("POST", _ALL + "/train", self.train, "Start a training from the access log", **begun),
            Endpoint("POST", _ALL + "/use", self.use, "Choose the version or predictor that serves", **posted),
            Endpoint("POST", _ALL + "/rollback", self.roll_back, "Return to the previous version", **shown),
        ]

    async def show(self, _: Request) -> Response:
        return await _respond(self._fabric.models())

    async def train(self, _: Request) -> Response:
        return await _respond(self._fabric.train_model(), 202)

    async def use(self, request: Request) -> Response:
        post: UsePost = read_json(request.body or b"{}", UsePost)
        return await _respond(self._fabric.use_model(BEST if post.version == "auto" else post.version, post.predictor))

    async def roll_back(self, _: Request) -> Response:
        return await _respond(self._fabric.roll_back_model())


async def _respond(state: Awaitable[ModelsState], status: int = 200) -> Response:
    try:
        return json_response(await state, status)
    except AgentLostError:
        raise
    except AgentError as error:  # not a failure: the current state does not allow it
        raise Refusal(409, str(error)) from error
