"""Endpoints of the operator for what is foreseen: the devices that are wanted, and moves of sandboxes."""

from msgspec import Struct

from aliquot.core.units import KIB
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response, read_json
from aliquot.live.invocations.ahead_of_demand import CapacityRow
from aliquot.live.invocations.platform import Platform


class MoveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A sandbox, by its number in `aliquot top`, and the device to which it shall move."""

    sandbox: int
    device: str


class ForesightEndpoints:
    """Handles requests about capacity and moves."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("GET", "/operator/v1/capacity", self.capacity, "Tell how many devices of each kind are wanted",
                     {200: list[CapacityRow]}, EndpointAccess.OPERATOR),
            Endpoint("POST", "/operator/v1/moves", self.move, "Move a sandbox to another device", {202: dict},
                     EndpointAccess.OPERATOR, body=MoveRequest, max_bytes=KIB, statuses=(408, 409, 413, 415)),
        ]  # fmt: skip

    async def capacity(self, _request: Request) -> Response:
        return json_response(self._platform.ahead.capacity())

    async def move(self, request: Request) -> Response:
        asked: MoveRequest = read_json(request.body or b"{}", MoveRequest)
        refusal = self._platform.ahead.move(asked.sandbox, asked.device)
        if refusal is not None:
            raise Refusal(409, f"Sandbox {asked.sandbox} cannot move to {asked.device}: {refusal}.")
        return json_response({}, 202)
