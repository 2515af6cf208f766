"""The endpoint for a namespace's view of the platform: devices, and its own functions, sandboxes and waiting calls."""

import time
from collections import defaultdict
from typing import Any

from aliquot.live.gateway.http.routing import Endpoint, Request, Response, json_response
from aliquot.live.invocations.platform import Platform

_PATH = "/api/v1/observe/overview"
OTHERS = "others"
FRESH_S = 0.9  # pages ask once a second
_FLOW_FIELDS = ("function", "weight", "queued", "in_flight", "arrivals", "run_estimate_s", "sandboxes", "misfit")
_SANDBOX_FIELDS = ("sandbox", "function", "device", "state", "uses", "session")


class OverviewEndpoints:
    """Handles requests for the overview. Other tenants appear only as numbers without names.

    The status is made once a second at most, however many pages are open, because it reads files of every sandbox.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._status: dict[str, Any] = {}
        self._made_s = -FRESH_S

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", _PATH, self.overview, "Devices, and your functions and sandboxes", {200: dict})]

    async def overview(self, request: Request) -> Response:
        now_s = time.monotonic()
        if now_s - self._made_s >= FRESH_S:
            self._status, self._made_s = self._platform.status(), now_s
        return json_response(for_namespace(self._status, request.namespace))


def for_namespace(status: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return the part of the operator's status that a namespace may see."""
    sandboxes = status["sandboxes"]
    busy_elsewhere: defaultdict[str, int] = defaultdict(int)
    for sandbox in sandboxes:
        if sandbox["tenant"] != namespace and sandbox["state"] == "busy":
            busy_elsewhere[sandbox["device"]] += 1
    flows = status["flows"]
    return {
        "stopping": status["stopping"],
        "policies": status["policies"],
        "devices": [{**device, OTHERS: busy_elsewhere[device["name"]]} for device in status["devices"]],
        "flows": [{field: flow[field] for field in _FLOW_FIELDS} for flow in flows if flow["tenant"] == namespace],
        "sandboxes": [
            {field: sandbox[field] for field in _SANDBOX_FIELDS}
            for sandbox in sandboxes
            if sandbox["tenant"] == namespace
        ],
        "queued": sum(flow["queued"] for flow in flows if flow["tenant"] == namespace),
        "queued_others": sum(flow["queued"] for flow in flows if flow["tenant"] != namespace),
    }
