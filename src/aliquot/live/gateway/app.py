"""The gateway: one ASGI application, put together from its parts."""

from pathlib import Path
from tempfile import gettempdir
from urllib.parse import quote

from aliquot.budgets import MappingBudget
from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.secret_cipher import SecretCipher
from aliquot.live.catalogue.secrets import SecretRegistry
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.forecasting.host import ForecasterProcess
from aliquot.live.gateway.apis.management import ApiManagement
from aliquot.live.gateway.apis.registry import ApiRegistry
from aliquot.live.gateway.apis.serving import ApiRoutes, is_api
from aliquot.live.gateway.entities.actions import ActionEndpoints
from aliquot.live.gateway.entities.alarms import AlarmEndpoints
from aliquot.live.gateway.entities.packages import PackageEndpoints
from aliquot.live.gateway.entities.rules import RuleEndpoints
from aliquot.live.gateway.entities.schedules import ActionSchedules
from aliquot.live.gateway.entities.secrets import SecretEndpoints
from aliquot.live.gateway.entities.triggers import TriggerEndpoints
from aliquot.live.gateway.entities.volumes import VolumeEndpoints
from aliquot.live.gateway.http.asgi import BodyReader, Receive, RequestIds, Scope, Send, send_response
from aliquot.live.gateway.http.auth import Auth, OperatorAuth
from aliquot.live.gateway.http.connections import Connections
from aliquot.live.gateway.http.events import ResponseLimits
from aliquot.live.gateway.http.response_counts import ResponseCounts
from aliquot.live.gateway.http.responses import JSON
from aliquot.live.gateway.http.routing import Endpoint, make_router
from aliquot.live.gateway.invocation.invoke import InvokeHandler, is_invocation
from aliquot.live.gateway.invocation.route import InvokeRoute
from aliquot.live.gateway.resources.about import AboutEndpoints, MetricsPage
from aliquot.live.gateway.resources.activations import ActivationEndpoints
from aliquot.live.gateway.resources.datasets import DatasetEndpoints
from aliquot.live.gateway.resources.demand_models import DemandModelEndpoints
from aliquot.live.gateway.resources.executions import ExecutionEndpoints
from aliquot.live.gateway.resources.foresight import ForesightEndpoints
from aliquot.live.gateway.resources.graphs import GraphEndpoints
from aliquot.live.gateway.resources.history import HistoryEndpoints
from aliquot.live.gateway.resources.models import ModelEndpoints
from aliquot.live.gateway.resources.nodes import NodeEndpoints
from aliquot.live.gateway.resources.objects import ObjectEndpoints
from aliquot.live.gateway.resources.openapi import OpenApiEndpoints
from aliquot.live.gateway.resources.operator import OperatorEndpoints
from aliquot.live.gateway.resources.overview import OverviewEndpoints
from aliquot.live.gateway.resources.sessions import SessionEndpoints
from aliquot.live.gateway.resources.settings import ServerFacts, SettingsEndpoints
from aliquot.live.gateway.resources.timelines import TimelineEndpoints
from aliquot.live.gateway.resources.whatif import WhatIfEndpoints
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web.handler import WebActions, WebRoute
from aliquot.live.gateway.web.running import WebActionRunner
from aliquot.live.gateway.web.target import PREFIX as WEB
from aliquot.live.gateway.web.target import WebTargets
from aliquot.live.history.services import HistoryServices, make_history
from aliquot.live.invocations.kernel_trials import KernelTrials
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.platform_counters import PlatformCounters
from aliquot.live.invocations.rate_limits import CallTotals, RateLimiters
from aliquot.live.invocations.sessions.registry import SessionRegistry
from aliquot.live.node.cluster import NodeAdministration
from aliquot.live.node.shared_buffers import NodeBuffers
from aliquot.live.objects.registry import ObjectRegistry
from aliquot.live.store.base import Store
from aliquot.live.store.operator_token import OperatorToken
from aliquot.live.triggers.alarms.scheduler import AlarmScheduler
from aliquot.live.triggers.dispatcher import TriggerDispatcher

DEFAULT_CONNECTIONS = 4096
_API = b"/api/v1"


class Gateway:
    """The ASGI application. Invocations go straight to `invoke`, as they do on the fast path of `protocol.py`."""

    def __init__(
        self,
        platform: Platform,
        catalogue: Catalogue,
        store: Store,
        settings: GatewaySettings,
        operator_token: OperatorToken,
        sessions: SessionRegistry | None = None,
        json_checker: JsonChecker | None = None,
        fabric: Fabric | None = None,
        secrets: SecretRegistry | None = None,
        buffers: NodeBuffers | None = None,
        metrics: Metrics | None = None,
        payloads: MappingBudget | None = None,
        connections: Connections | None = None,
        history: HistoryServices | None = None,
        counters: PlatformCounters | None = None,
        trials: KernelTrials | None = None,
        objects: ObjectRegistry | None = None,
        forecaster: ForecasterProcess | None = None,
        facts: ServerFacts | None = None,
        nodes: NodeAdministration | None = None,
    ) -> None:
        """Put the parts together. Parts that are not given are made here, without buffers shared with sandboxes."""
        self._platform = platform
        self._trials = trials
        self._forecaster = forecaster
        self._facts = facts or ServerFacts()
        self._nodes = nodes
        self._objects = objects or ObjectRegistry(store, Path(gettempdir(), "aliquot-without-objects"))
        self._catalogue = catalogue
        self._store = store
        self._settings = settings
        self._json_checker = json_checker or JsonChecker()
        self.payloads = payloads or MappingBudget("payloads", settings.bodies_bytes, settings.calls_in_flight)
        totals = CallTotals(settings.calls_in_flight, self.payloads)
        self.rate_limiters = RateLimiters(settings.rate_limits, totals=totals)
        self._auth = Auth(catalogue, self.rate_limiters)
        self.sessions = sessions or SessionRegistry(store, platform, settings.sessions)
        self.fabric = fabric or Fabric(store)
        self._secrets = secrets or SecretRegistry(store, SecretCipher(None), settings.secrets_per_namespace)
        catalogue.add_namespace_data(self.fabric.datasets)
        catalogue.add_namespace_data(self.fabric.volumes)
        catalogue.add_namespace_data(self._secrets)
        catalogue.add_namespace_data(self._objects)
        catalogue.add_namespace_data(platform.workflows.executions)
        self.connections = connections or Connections(settings.connections or DEFAULT_CONNECTIONS)
        self._responses = ResponseLimits(settings)
        self._bodies = BodyReader(settings, self.payloads)
        self._metrics = metrics or Metrics()
        self._dispatcher = TriggerDispatcher(platform, catalogue, self.rate_limiters, self._metrics)
        self.alarms = AlarmScheduler(store, catalogue, self._dispatcher.fire, expect=self._dispatcher.expect)
        self.responses = ResponseCounts()
        self._counters = counters
        self.history = history or make_history(store, None)
        self.historian = self.history.historian
        self._operator_token = operator_token
        self._operator_auth = OperatorAuth(operator_token)
        self.request_ids = RequestIds()
        self.invoke = InvokeHandler(
            platform,
            catalogue,
            settings,
            self._auth,
            self._metrics,
            self.sessions,
            self._json_checker,
            self.connections,
            buffers,
        )
        self._invoke_route = InvokeRoute(self.invoke, self._bodies, self.request_ids, settings, self._responses)
        self._web_route, self._api_route = self._make_web_routes()
        self.endpoints = self._make_endpoints()
        self._router = make_router(
            self.endpoints, self._auth, self._operator_auth, self._bodies, self.connections, self._responses
        )

    def _make_web_routes(self) -> tuple[WebRoute, WebRoute]:
        """Return the routes of web actions and of API routes."""
        settings = self._settings
        targets = WebTargets(self._catalogue, self.rate_limiters, self._metrics)
        apis = ApiRegistry(self._store, self._catalogue)
        web = WebActions(
            targets,
            WebActionRunner(self._platform, settings),
            self._auth,
            self._bodies,
            self._json_checker,
            settings,
            ApiManagement(apis, self._catalogue, settings).builtins(),
            self.connections,
        )
        api_routes = ApiRoutes(apis, web, targets)
        return WebRoute(web.handle, self.request_ids), WebRoute(api_routes.handle, self.request_ids)

    def _make_endpoints(self) -> list[Endpoint]:
        """Return the table of endpoints."""
        platform, catalogue, store, settings = self._platform, self._catalogue, self._store, self._settings
        schedules = ActionSchedules(catalogue, self.alarms, settings.alarms_per_namespace)
        endpoints = [
            *ActionEndpoints(platform, catalogue, settings, schedules, self._trials, self._objects).endpoints(),
            *PackageEndpoints(catalogue, settings, schedules).endpoints(),
            *TriggerEndpoints(catalogue, settings, self._dispatcher).endpoints(),
            *RuleEndpoints(catalogue, settings).endpoints(),
            *AlarmEndpoints(catalogue, self.alarms, settings.alarms_per_namespace).endpoints(),
            *SecretEndpoints(self._secrets, catalogue).endpoints(),
            *VolumeEndpoints(self.fabric, catalogue, settings).endpoints(),
            *ActivationEndpoints(platform, store, self._responses).endpoints(),
            *TimelineEndpoints(platform, self.history.timelines).endpoints(),
            *HistoryEndpoints(self.history.historian).endpoints(),
            *OverviewEndpoints(platform, self._responses).endpoints(),
            *WhatIfEndpoints(self.history.whatif).endpoints(),
            *ForesightEndpoints(platform).endpoints(),
            *SettingsEndpoints(platform, store, self._facts).endpoints(),
            *ExecutionEndpoints(platform, store, catalogue, self._metrics, self._responses).endpoints(),
            *GraphEndpoints(platform.workflows, store, catalogue).endpoints(),
            *SessionEndpoints(self.sessions).endpoints(),
            *DatasetEndpoints(self.fabric, catalogue, self._responses).endpoints(),
            *ModelEndpoints(self.fabric).endpoints(),
            *DemandModelEndpoints(self._forecaster).endpoints(),
            *ObjectEndpoints(self._objects, settings.body_s).endpoints(),
            *OperatorEndpoints(platform, catalogue, self.sessions, self._operator_token, self._nodes).endpoints(),
            *NodeEndpoints(self._nodes).endpoints(),
            *AboutEndpoints(store, settings, self.rate_limiters).endpoints(),
            MetricsPage(
                *(self._operator_auth, self._metrics, platform, store, self.invoke, self.alarms),
                counters=self._counters,
                responses=self.responses,
                spans=self.historian.job,
                nodes=self._nodes,
            ).endpoint(settings),
        ]
        return [*endpoints, *OpenApiEndpoints(endpoints).endpoints()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _not_http(scope, receive, send)
            return
        send = self.responses.counting(send)
        path = scope.get("raw_path")
        if path is None:  # optional in ASGI
            path = scope["raw_path"] = quote(scope["path"]).encode()
        if is_invocation(scope["method"], path):
            await self._invoke_route(scope, receive, send)
            return
        if path.startswith(WEB):
            await self._web_route(scope, receive, send)
            return
        if is_api(path):
            await self._api_route(scope, receive, send)
            return
        transaction = self.request_ids.of(dict(scope["headers"]).get(b"x-request-id"))
        if scope["method"] == "OPTIONS" and (path == _API or path.startswith(_API + b"/")):
            await send_response(send, 200, (JSON, (b"x-request-id", transaction.encode())), b"")
            return
        # Starlette matches the raw path, because names are decoded only after the path is split.
        await self._router(
            {**scope, "path": path.decode("latin-1"), "root_path": "", "transaction": transaction}, receive, send
        )

    def close(self) -> None:
        """Stop the timers and the JSON checker. Running calls continue."""
        self.invoke.close()
        self._bodies.close()
        self._json_checker.close()


async def _not_http(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
        return
    while True:  # lifespan: nothing here starts or stops with the server
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
