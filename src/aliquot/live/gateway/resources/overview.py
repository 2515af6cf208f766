"""Endpoints for the state of the platform now: devices, functions, sandboxes and waiting calls, once or each second.

The state is made at most once a second for all who look, and each listening namespace's part once a second.
"""

import asyncio
import time
from collections import Counter, defaultdict
from typing import Any

import msgspec

from aliquot.live.gateway.http.connections import OPERATOR
from aliquot.live.gateway.http.events import ResponseLimits, TickStream
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response
from aliquot.live.invocations.platform import Platform

_PATH = "/api/v1/observe/overview"
_STREAM = "/api/v1/observe/stream"
OTHERS = "others"
FRESH_S = 0.9  # pages ask once a second
TICK_S = 1.0
MAX_LISTENERS, MAX_LISTENERS_PER_TENANT = 64, 8
MAX_FLOWS, MAX_SANDBOXES = 500, 500  # in a tick; the busiest ones
_FLOW_FIELDS = ("function", "weight", "queued", "in_flight", "arrivals", "run_estimate_s", "sandboxes", "misfit")
_SANDBOX_FIELDS = ("sandbox", "function", "device", "state", "uses", "session")
_OPERATORS = ("tenants", "builds", "forecasts", "results", "promises", "fabric", "host_bytes", "host_limit_bytes")


class OverviewEndpoints:
    """Handles requests for the state now. To a namespace others appear only as numbers without names."""

    def __init__(self, platform: Platform, responses: ResponseLimits) -> None:
        self._platform = platform
        self._responses = responses
        self._status: dict[str, Any] = {}
        self._made_s = -FRESH_S
        self._listeners: dict[TickStream, str] = {}  # with the namespace, or `OPERATOR`
        self._ticking: asyncio.Task[None] | None = None

    def endpoints(self) -> list[Endpoint]:
        observer: dict[str, Any] = {"access": EndpointAccess.OBSERVER}
        return [
            Endpoint("GET", _PATH, self.overview, "Devices, functions and sandboxes now", {200: dict}, **observer),
            Endpoint("GET", _STREAM, self.stream, "The same each second, as events with what has changed",
                     {200: None}, streams=True, **observer),
        ]  # fmt: skip

    async def overview(self, request: Request) -> Response:
        return json_response(self._part_of(self._fresh(), _viewer(request)))

    async def stream(self, request: Request) -> Response:
        """Begin a stream. Its first tick has everything."""
        viewer = _viewer(request)
        count = Counter(self._listeners.values())
        if count.total() >= MAX_LISTENERS or count[viewer] >= MAX_LISTENERS_PER_TENANT:
            raise Refusal(429, f"{count[viewer]} streams are open already, and {MAX_LISTENERS_PER_TENANT} are allowed.")
        events = TickStream(self._responses, request.transaction)
        events.open(viewer)
        events.tick(_encoded(self._part_of(self._fresh(), viewer)))
        self._listeners[events] = viewer
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())
        return Response(200, b"", events=events)

    async def _tick(self) -> None:
        """Send a tick to all listeners each second, until there is none."""
        while True:
            await asyncio.sleep(TICK_S)
            for events in [events for events in self._listeners if events.closed]:
                del self._listeners[events]
            if not self._listeners:
                self._ticking = None
                return
            status = self._fresh()
            parts = {viewer: _encoded(self._part_of(status, viewer)) for viewer in set(self._listeners.values())}
            for events, viewer in self._listeners.items():
                events.tick(parts[viewer])

    def _fresh(self) -> dict[str, Any]:
        now_s = time.monotonic()
        if now_s - self._made_s >= FRESH_S:
            self._status, self._made_s = self._platform.status(with_processes=False), now_s
        return self._status

    def _part_of(self, status: dict[str, Any], viewer: str) -> dict[str, Any]:
        return for_operator(status) if viewer == OPERATOR else for_namespace(status, viewer)


def _viewer(request: Request) -> str:
    return OPERATOR if request.principal is None else request.namespace


def _encoded(part: dict[str, Any]) -> dict[str, bytes]:
    return {name: msgspec.json.encode(value) for name, value in part.items()}


def for_operator(status: dict[str, Any]) -> dict[str, Any]:
    """Return the state of all namespaces, without processes and without what changes with every look."""
    fields = (*_FLOW_FIELDS, "tenant", "virtual_time")
    flows = [{field: flow.get(field) for field in fields} for flow in status["flows"]]
    shown = ("tenant", *_SANDBOX_FIELDS, "share", "share_used")
    sandboxes = [{field: each.get(field) for field in shown} for each in status["sandboxes"]]
    more = {name: status[name] for name in _OPERATORS if name in status}
    forecasts = {"forecasts": status["forecasts"]["rows"]} if "forecasts" in status else {}
    return {**_common(status), **more, **forecasts, **_counted(flows, sandboxes), "devices": status["devices"]}


def for_namespace(status: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return the part of the state that a namespace may see."""
    busy_elsewhere: defaultdict[str, int] = defaultdict(int)
    own = []
    for sandbox in status["sandboxes"]:
        if sandbox["tenant"] == namespace:
            own.append({field: sandbox.get(field) for field in _SANDBOX_FIELDS})
        elif sandbox["state"] == "busy":
            busy_elsewhere[sandbox["device"]] += 1
    flows = [flow for flow in status["flows"] if flow["tenant"] == namespace]
    queued = sum(flow["queued"] for flow in status["flows"])
    shown = [{field: flow[field] for field in _FLOW_FIELDS} for flow in flows]
    forecasts = status.get("forecasts")
    rows = {} if forecasts is None else {"forecasts": [row for row in forecasts["rows"] if row["tenant"] == namespace]}
    return {
        **_common(status),
        **rows,
        **_counted(shown, own),
        "devices": [{**device, OTHERS: busy_elsewhere[device["name"]]} for device in status["devices"]],
        "queued_others": queued - sum(flow["queued"] for flow in flows),
    }


def _common(status: dict[str, Any]) -> dict[str, Any]:
    return {"stopping": status.get("stopping", False), "policies": status.get("policies", [])}


def _counted(flows: list[dict[str, Any]], sandboxes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the busiest functions and sandboxes with the numbers of all."""
    return {
        "flows": _busiest(flows, MAX_FLOWS, ("queued", "in_flight", "arrivals")),
        "sandboxes": _busiest(sandboxes, MAX_SANDBOXES, ("uses",)),
        "flow_count": len(flows),
        "sandbox_count": len(sandboxes),
        "queued": sum(flow["queued"] for flow in flows),
        "in_flight": sum(flow["in_flight"] for flow in flows),
        "arrivals": sum(flow["arrivals"] for flow in flows),
    }


def _busiest(rows: list[dict[str, Any]], most: int, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    if len(rows) <= most:
        return rows
    return sorted(rows, key=lambda row: [-row[field] for field in fields])[:most]
