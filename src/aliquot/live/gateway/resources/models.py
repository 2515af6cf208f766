"""Models over HTTP, for the operator: which there are, how they did, which serves; train, choose, roll back."""

from collections.abc import Awaitable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from aliquot.core.units import MIB
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.datasets.requests import AgentError, AgentLostError
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Access, Endpoint, Request, Response, json_response, read_json
from aliquot.storage.models import BEST, ModelsState

_ALL = "/operator/v1/models"


class UsePost(Struct, forbid_unknown_fields=True):
    """Which version is to serve, and which of its predictors; neither: the best of what was learned."""

    version: Annotated[int, Meta(ge=1)] | Literal["auto"] | None = None  # `auto`: the best
    predictor: str | None = None  # `auto`: the one that won


class ModelEndpoints:
    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def endpoints(self) -> list[Endpoint]:
        told: dict[str, Any] = {"responses": {200: ModelsState}, "access": Access.OPERATOR, "statuses": (409, 503)}
        begun = {**told, "responses": {202: ModelsState}}
        posted = {**told, "body": UsePost, "max_bytes": MIB, "statuses": (408, 409, 413, 415, 503)}
        return [
            Endpoint("GET", _ALL, self.show, "Versions of the model, and where a training stands", **told),
            Endpoint("POST", _ALL + "/train", self.train, "Begin a training from the access log", **begun),
            Endpoint("POST", _ALL + "/use", self.use, "Have a version serve, or a predictor", **posted),
            Endpoint("POST", _ALL + "/rollback", self.roll_back, "Have the version before serve again", **told),
        ]

    async def show(self, _: Request) -> Response:
        return await _answer(self._fabric.models())

    async def train(self, _: Request) -> Response:
        return await _answer(self._fabric.train_model(), 202)

    async def use(self, request: Request) -> Response:
        post: UsePost = read_json(request.body or b"{}", UsePost)
        return await _answer(self._fabric.use_model(BEST if post.version == "auto" else post.version, post.predictor))

    async def roll_back(self, _: Request) -> Response:
        return await _answer(self._fabric.roll_back_model())


async def _answer(state: Awaitable[ModelsState], status: int = 200) -> Response:
    try:
        return json_response(await state, status)
    except AgentLostError:
        raise
    except AgentError as error:  # nothing failed: it cannot be done as things are
        raise Refusal(409, str(error)) from error
