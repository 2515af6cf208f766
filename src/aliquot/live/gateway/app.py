"""The gateway put together: one ASGI application."""

from urllib.parse import quote

from aliquot.live.bodies.json_checker import JsonChecker
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.datasets.fabric import Fabric
from aliquot.live.gateway.about import About
from aliquot.live.gateway.actions import Actions
from aliquot.live.gateway.activations import Activations
from aliquot.live.gateway.alarms import Alarms
from aliquot.live.gateway.answers import JSON
from aliquot.live.gateway.apis.management import ApiManagement
from aliquot.live.gateway.apis.registry import Apis
from aliquot.live.gateway.apis.serving import ApiRoutes, is_api
from aliquot.live.gateway.asgi import Bodies, InvokeRoute, Receive, Scope, Send, Transactions, send_answer
from aliquot.live.gateway.auth import Auth, OperatorAuth
from aliquot.live.gateway.datasets import DatasetPages
from aliquot.live.gateway.invoke import Invoke, is_invocation
from aliquot.live.gateway.metrics_page import MetricsPage
from aliquot.live.gateway.models import ModelPages
from aliquot.live.gateway.openapi import OpenApi
from aliquot.live.gateway.operator import Operator
from aliquot.live.gateway.packages import Packages
from aliquot.live.gateway.routing import Endpoint, make_router
from aliquot.live.gateway.rules import Rules
from aliquot.live.gateway.sessions import SessionPages
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.triggers import Triggers
from aliquot.live.gateway.web.described import described
from aliquot.live.gateway.web.handler import WebActions, WebRoute
from aliquot.live.gateway.web.running import Runner
from aliquot.live.gateway.web.target import PREFIX as WEB
from aliquot.live.gateway.web.target import WebTargets
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.platform import Platform
from aliquot.live.invocations.rate_limits import RateLimiters
from aliquot.live.invocations.sessions.registry import Sessions
from aliquot.live.store.base import Store
from aliquot.live.triggers.alarms.clock import AlarmClock
from aliquot.live.triggers.dispatcher import TriggerDispatcher


class Gateway:
    """An invocation goes straight to `invoke`; a leaner transport than ASGI may do the same."""

    def __init__(
        self,
        platform: Platform,
        catalogue: Catalogue,
        store: Store,
        settings: GatewaySettings,
        operator_token: str,
        sessions: Sessions | None = None,
        judge: JsonChecker | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        self._judge = judge or JsonChecker()
        self.rate_limiters = RateLimiters(settings.rate_limits)
        auth = Auth(catalogue, self.rate_limiters)
        self.metrics = Metrics()
        self.sessions = sessions or Sessions(store, platform, settings.sessions)
        self.fabric = fabric or Fabric(store)
        catalogue.companions.append(self.fabric.datasets)
        self.invoke = Invoke(platform, catalogue, settings, auth, self.metrics, self.sessions, self._judge)
        self.firing = TriggerDispatcher(platform, catalogue, self.rate_limiters, self.metrics)
        self.clock = AlarmClock(store, catalogue, self.firing.fire)
        self.transactions = Transactions()
        self._bodies = Bodies(settings)
        self._invoke_route = InvokeRoute(self.invoke, self._bodies, self.transactions, settings)
        openapi = OpenApi()
        self.endpoints: list[Endpoint] = [
            *Actions(platform, catalogue, settings).endpoints(),
            *Packages(catalogue, settings).endpoints(),
            *Triggers(catalogue, settings, self.firing).endpoints(),
            *Rules(catalogue, settings).endpoints(),
            *Alarms(catalogue, self.clock).endpoints(),
            *Activations(platform, store, settings).endpoints(),
            *SessionPages(self.sessions).endpoints(),
            *DatasetPages(self.fabric, catalogue, settings).endpoints(),
            *ModelPages(self.fabric).endpoints(),
            *Operator(platform, catalogue, self.sessions).endpoints(),
            *About(store, settings, self.rate_limiters).endpoints(),
            MetricsPage(self.metrics, platform, store, self.invoke, self.clock).endpoint(settings),
            *openapi.endpoints(),
        ]
        targets = WebTargets(catalogue, self.rate_limiters, self.metrics)
        web = WebActions(targets, Runner(platform, settings), auth, self._bodies, self._judge, settings)
        apis = Apis(store, catalogue)
        web.natives = ApiManagement(apis, catalogue, settings).natives()
        self._web_route = WebRoute(web.answer, self.transactions)
        self._api_route = WebRoute(ApiRoutes(apis, web, targets).answer, self.transactions)
        openapi.described = [*self.endpoints, *described()]
        self._router = make_router(self.endpoints, auth, OperatorAuth(operator_token), self._bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _not_http(scope, receive, send)
            return
        path = scope.get("raw_path")
        if path is None:  # a server need not tell it
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
        transaction = self.transactions.of(dict(scope["headers"]).get(b"x-request-id"))
        if scope["method"] == "OPTIONS":
            await send_answer(send, 200, (JSON, (b"x-request-id", transaction.encode())), b"")
            return
        # Starlette sees the raw path: a name is split off first and decoded then.
        await self._router(
            {**scope, "path": path.decode("latin-1"), "root_path": "", "transaction": transaction}, receive, send
        )

    def close(self) -> None:
        """Let go of timers; what is awaited goes on."""
        self.invoke.close()
        self._bodies.close()
        self._judge.close()


async def _not_http(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
        return
    while True:  # lifespan: nothing of ours begins or ends with the server
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def make_app(
    platform: Platform,
    catalogue: Catalogue,
    store: Store,
    settings: GatewaySettings,
    operator_token: str,
    sessions: Sessions | None = None,
    judge: JsonChecker | None = None,
    fabric: Fabric | None = None,
) -> Gateway:
    return Gateway(platform, catalogue, store, settings, operator_token, sessions, judge, fabric)
