"""Endpoints about the platform itself: the host's description, the caller's namespace and limits, health, metrics."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from aliquot import version
from aliquot.core.units import MIB
from aliquot.live.gateway.entities.kinds import RuntimeInfo, runtimes
from aliquot.live.gateway.http.auth import OperatorAuth
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.http.response_counts import ResponseCounts
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Request, Response, json_response
from aliquot.live.gateway.invocation.invoke import InvokeHandler
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.history.historian_process import HistorianJobPeer
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.platform_counters import PlatformCounters
from aliquot.live.invocations.rate_limits import RateLimiters
from aliquot.live.node.cluster import NodeAdministration
from aliquot.live.store.base import Store
from aliquot.live.triggers.alarms.scheduler import AlarmScheduler
from aliquot.version import __version__

NO_LIMIT = 2**31 - 1  # the largest number that all clients can read
_TOTALS_FACTOR = 40  # so that strangers take at most a twentieth of the event loop's time, with both formats
_METRICS_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class HostInfo(Struct):
    """The response of `GET /`."""

    description: str
    support: dict[str, str]
    api_paths: list[str]
    limits: dict[str, int]
    runtimes: dict[str, list[RuntimeInfo]]


class ApiInfo(Struct):
    description: str
    api_version: str
    api_version_path: str
    build: str
    buildno: str
    swagger_paths: dict[str, str]


class NamespaceLimits(Struct, rename="camel"):
    """The limits of a namespace. One that is not set is `NO_LIMIT`."""

    invocations_per_minute: int
    concurrent_invocations: int
    fires_per_minute: int
    min_action_memory: int
    max_action_memory: int
    min_action_logs: int
    max_action_logs: int
    min_action_timeout: int
    max_action_timeout: int
    min_action_concurrency: int
    max_action_concurrency: int
    max_parameter_size: str
    max_action_instances: int


class Health(Struct):
    status: str
    complaint: str | None = None


class AboutEndpoints:
    """Handles requests for the platform's description, limits and health."""

    def __init__(self, store: Store, settings: GatewaySettings, rate_limiters: RateLimiters) -> None:
        self._store = store
        self._settings = settings
        self._rate_limiters = rate_limiters

    def endpoints(self) -> list[Endpoint]:
        anyone: dict[str, Any] = {"access": EndpointAccess.ANYONE}
        limits = "/api/v1/namespaces/{namespace}/limits"
        return [
            Endpoint("GET", "/", self.host, "Runtimes and limits of this host", {200: HostInfo}, **anyone),
            Endpoint("GET", "/api/v1", self.api, "The API's version", {200: ApiInfo}, **anyone),
            Endpoint("GET", "/health", self.health, "The platform's health", {200: Health, 503: Health}, **anyone),
            Endpoint("GET", "/api/v1/namespaces", self.namespaces, "The caller's namespace", {200: list[str]}),
            Endpoint("GET", limits, self.limits, "The caller's limits", {200: NamespaceLimits}),
            Endpoint("GET", limits + "/{name}", self.limit, "A single limit, always refused", {}, statuses=(400,)),
        ]

    async def host(self, _: Request) -> Response:
        settings = self._settings
        limits = {
            "actions_per_minute": _number(settings.invocations_per_minute),
            "triggers_per_minute": _number(settings.fires_per_minute),
            "concurrent_actions": _number(settings.concurrent_invocations),
            "sequence_length": settings.sequence_length,
            "max_action_payload": settings.payload_bytes,
            "max_action_result": settings.payload_bytes,
        }
        ranges = {"duration": (settings.timeout_ms, 1), "memory": (settings.memory_mb, MIB)}
        ranges["logs"] = (settings.logs_mb, MIB)
        for name, (allowed, unit) in ranges.items():
            limits[f"min_action_{name}"] = allowed.minimum * unit
            limits[f"max_action_{name}"] = allowed.maximum * unit
            limits[f"default_action_{name}"] = allowed.default * unit
            limits[f"default_min_action_{name}"] = allowed.minimum * unit  # of a namespace without limits of its own
            limits[f"default_max_action_{name}"] = allowed.maximum * unit
        support = {"github": "https://github.com/aliquot/aliquot/issues", "slack": ""}
        return json_response(HostInfo("Aliquot", support, ["/api/v1"], limits, runtimes(nodejs=settings.nodejs)))

    async def api(self, _: Request) -> Response:
        paths = {"ui": "/docs", "api-docs": "/openapi.json"}
        return json_response(ApiInfo("Aliquot API", "1.0.0", "v1", _build_date(), __version__, paths))

    async def health(self, _: Request) -> Response:
        complaint = self._store.health.problem
        return json_response(Health("ok")) if complaint is None else json_response(Health("failing", complaint), 503)

    async def namespaces(self, request: Request) -> Response:
        return json_response([request.namespace])

    async def limits(self, request: Request) -> Response:
        assert request.principal is not None  # noqa: S101 - the endpoint requires a key
        per_minute, max_concurrent, fires_per_minute = self._rate_limiters.limits(request.principal.namespace)
        settings = self._settings
        return json_response(
            NamespaceLimits(
                _number(per_minute),
                _number(max_concurrent),
                _number(fires_per_minute),
                settings.memory_mb.minimum,
                settings.memory_mb.maximum,
                settings.logs_mb.minimum,
                settings.logs_mb.maximum,
                settings.timeout_ms.minimum,
                settings.timeout_ms.maximum,
                settings.concurrency.minimum,
                settings.concurrency.maximum,
                f"{settings.parameters_bytes} B",
                _number(max_concurrent),
            )
        )

    async def limit(self, _: Request) -> Response:
        raise Refusal(400, "Inner entity level routes for limits are not yet implemented.")


def _number(limit: int | None) -> int:
    return NO_LIMIT if limit is None else limit


def _build_date() -> str:
    """Return when this version was installed. Clients expect a date."""
    changed_s = Path(version.__file__).stat().st_mtime
    return datetime.fromtimestamp(changed_s, UTC).isoformat(timespec="seconds")


class MetricsPage:
    """Handles `/metrics`. Prometheus' library is imported with the first page, so that the server starts faster."""

    def __init__(
        self,
        operator: OperatorAuth,
        metrics: Metrics,
        platform: Platform,
        store: Store,
        invoke: InvokeHandler,
        alarms: AlarmScheduler,
        *,
        counters: PlatformCounters | None,
        responses: ResponseCounts,
        spans: HistorianJobPeer | None,
        nodes: NodeAdministration | None = None,
    ) -> None:
        self._operator = operator
        self._parts = (metrics, platform, store, invoke, alarms)
        self._store = store
        self._counters, self._responses, self._spans, self._nodes = counters, responses, spans, nodes
        self._totals: dict[bool, tuple[bytes, float]] = {}  # and how long they hold, in both formats

    def endpoint(self, settings: GatewaySettings) -> Endpoint:
        access = EndpointAccess.OPERATOR if settings.metrics_are_operators else EndpointAccess.ANYONE
        text = "Metrics for Prometheus; with the operator's token also by namespace and action"
        return Endpoint("GET", "/metrics", self.page, text, {200: None}, access, statuses=(401,))

    async def page(self, request: Request) -> Response:
        """Respond with totals to anyone, and with the names of namespaces and actions to the operator.

        The totals of thousands of actions take long, and anyone may ask for them. So they are made again only after
        many times as long as they took.
        """
        from aliquot.live.gateway.resources import prometheus  # noqa: PLC0415 - see above

        if self._counters is not None:
            self._counters.monitor.wake()
        exemplars = prometheus.wants_openmetrics(request.headers.get(b"accept", b""))
        content_type = ((b"content-type", prometheus.OPENMETRICS),) if exemplars else (_METRICS_TYPE,)
        header = request.headers.get(b"authorization")
        if header is not None:
            self._operator.check(header)  # a wrong token is an error, not a request for the totals
            return Response(200, self._render(with_names=True, exemplars=exemplars), content_type)
        begun_s = time.monotonic()
        totals, until_s = self._totals.get(exemplars, (b"", begun_s))
        if begun_s >= until_s:
            totals = self._render(with_names=False, exemplars=exemplars)
            ended_s = time.monotonic()
            self._totals[exemplars] = totals, ended_s + _TOTALS_FACTOR * (ended_s - begun_s)
        return Response(200, totals, content_type)

    def _render(self, *, with_names: bool, exemplars: bool) -> bytes:
        from aliquot.live.gateway.resources import prometheus  # noqa: PLC0415 - see above
        from aliquot.live.gateway.resources.platform_metrics import PlatformSources  # noqa: PLC0415

        spans = None if self._spans is None else self._spans.counts
        nodes = None if self._nodes is None else self._nodes.list()
        sources = PlatformSources(self._counters, self._responses, spans, self._store.commit_times, nodes)
        collector = prometheus.PlatformCollector(*self._parts, sources, with_names=with_names)
        return prometheus.render_metrics(collector, exemplars=exemplars)
