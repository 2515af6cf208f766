"""Endpoints for the operator's question what other policies would have done with the last calls."""

from typing import Any

from aliquot.core.units import KIB
from aliquot.live.gateway.http.refusal import Refusal, malformed
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response, read_json
from aliquot.live.history.whatif_runs import WhatIfBusyError, WhatIfQuestion, WhatIfRuns, WhatIfState

_PATH = "/operator/v1/whatif"


class WhatIfEndpoints:
    """Handles questions: ask one, see how it stands, cancel it."""

    def __init__(self, runs: WhatIfRuns) -> None:
        self._runs = runs

    def endpoints(self) -> list[Endpoint]:
        operator: dict[str, Any] = {"access": EndpointAccess.OPERATOR}
        state = {200: WhatIfState}
        return [
            Endpoint("GET", _PATH, self.show, "The last what-if question and its answer", state, **operator),
            Endpoint("POST", _PATH, self.ask, "Simulate the last calls under other policies", {202: WhatIfState},
                     body=WhatIfQuestion, max_bytes=64 * KIB, statuses=(408, 409, 413, 415), **operator),
            Endpoint("DELETE", _PATH, self.cancel, "Cancel the question", state, **operator),
        ]  # fmt: skip

    async def show(self, _: Request) -> Response:
        return json_response(self._runs.state)

    async def ask(self, request: Request) -> Response:
        question: WhatIfQuestion = read_json(request.body or b"{}", WhatIfQuestion)
        if (problem := question.problem()) is not None:
            raise malformed(problem)
        try:
            self._runs.ask(question)
        except WhatIfBusyError as error:
            raise Refusal(409, f"{error}.") from error
        return json_response(self._runs.state, 202)

    async def cancel(self, _: Request) -> Response:
        await self._runs.cancel()
        return json_response(self._runs.state)
