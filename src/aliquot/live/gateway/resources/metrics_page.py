"""`/metrics`. Prometheus' library is imported with the first page: a start need not wait for it."""

from aliquot.live.gateway.http.routing import Access, Endpoint, Request, Response
from aliquot.live.gateway.invocation.invoke import InvokeHandler
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.platform import Platform
from aliquot.live.store.base import Store
from aliquot.live.triggers.alarms.clock import AlarmClock

_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class MetricsPage:
    def __init__(
        self, metrics: Metrics, platform: Platform, store: Store, invoke: InvokeHandler, clock: AlarmClock
    ) -> None:
        self._parts = (metrics, platform, store, invoke, clock)

    def endpoint(self, settings: GatewaySettings) -> Endpoint:
        access = Access.OPERATOR if settings.metrics_for_operator_only else Access.ANYONE
        return Endpoint("GET", "/metrics", self.page, "PlatformCollector for Prometheus", {200: None}, access)

    async def page(self, _: Request) -> Response:
        from aliquot.live.gateway.resources.prometheus import PlatformCollector, render_metrics  # noqa: PLC0415 - see the head of the file

        return Response(200, render_metrics(PlatformCollector(*self._parts)), (_TYPE,))
