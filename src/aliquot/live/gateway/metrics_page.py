"""`/metrics`. Prometheus' library is imported with the first page: a start need not wait for it."""

from aliquot.live.gateway.invoke import Invoke
from aliquot.live.gateway.routing import Access, Answer, Asked, Endpoint
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.metrics import Metrics
from aliquot.live.invocations.platform import Platform
from aliquot.live.store.base import Store
from aliquot.live.triggers.alarms.clock import AlarmClock

_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


class MetricsPage:
    def __init__(self, metrics: Metrics, platform: Platform, store: Store, invoke: Invoke, clock: AlarmClock) -> None:
        self._parts = (metrics, platform, store, invoke, clock)

    def endpoint(self, settings: GatewaySettings) -> Endpoint:
        access = Access.OPERATOR if settings.metrics_for_operator_only else Access.ANYONE
        return Endpoint("GET", "/metrics", self.page, "Figures for Prometheus", {200: None}, access)

    async def page(self, _: Asked) -> Answer:
        from aliquot.live.gateway.prometheus import Figures, page  # noqa: PLC0415 - see the head of the file

        return Answer(200, page(Figures(*self._parts)), (_TYPE,))
