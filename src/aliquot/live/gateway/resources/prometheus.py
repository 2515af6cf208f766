"""Metrics in Prometheus' format: the gateway's counters, and the platform's state at the time of the request.

Names of namespaces, actions and triggers are for the operator. Without them the same metrics are sums over all tenants.
"""

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as OpenMetricsExemplar

from aliquot.histogram import Exemplar
from aliquot.live.gateway.invocation.invoke import InvokeHandler
from aliquot.live.gateway.resources.platform_metrics import PlatformSources, platform_metrics
from aliquot.live.invocations.metrics import OTHERS, ActionMetrics, Metrics
from aliquot.live.invocations.platform import Platform
from aliquot.live.store.base import Store
from aliquot.live.triggers.alarms.scheduler import AlarmScheduler

OPENMETRICS = CONTENT_TYPE_LATEST.encode()
MAX_LABELLED = 500  # actions with labels of their own; the others are counted together
_STATUSES = ("success", "application error", "action developer error", "whisk internal error")


def wants_openmetrics(accept: bytes) -> bool:
    """Return whether a client accepts OpenMetrics, as Prometheus does when it keeps exemplars."""
    kinds = (kind.split(b";")[0].strip().lower() for kind in accept.split(b","))
    return b"application/openmetrics-text" in kinds


def render_metrics(collector: "PlatformCollector", *, exemplars: bool = False) -> bytes:
    """Return the page in Prometheus' text format, or in OpenMetrics with exemplars."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    page: bytes = generate_openmetrics(registry) if exemplars else generate_latest(registry)  # type: ignore[no-untyped-call]
    return page


def _bucket(bound: str, count: float, exemplar: Exemplar | None) -> tuple[str, float] | tuple[str, float, Any]:
    if exemplar is None:
        return bound, count
    return bound, count, OpenMetricsExemplar({"trace_id": exemplar.trace_id}, exemplar.seconds, exemplar.at_s)


class PlatformCollector(Collector):
    """Collects the current values of all metrics for each page."""

    def __init__(
        self,
        metrics: Metrics,
        platform: Platform,
        store: Store,
        invoke: InvokeHandler,
        alarms: AlarmScheduler,
        sources: PlatformSources | None = None,
        *,
        with_names: bool,
    ) -> None:
        self._with_names = with_names
        self._metrics = metrics
        self._platform = platform
        self._store = store
        self._invoke = invoke
        self._alarms = alarms
        self._sources = sources

    def describe(self) -> list[Metric]:
        """Return nothing: the metric families are known when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._activations()
        yield self._fires()
        yield GaugeMetricFamily("aliquot_alarms", "Scheduled alarms", value=self._alarms.active)
        yield CounterMetricFamily("aliquot_alarms_missed", "Alarms that were due but did not fire", self._alarms.missed)
        status = self._platform.status()
        yield from self._state(status)
        if "forecasts" in status:
            yield from _forecasts(status["forecasts"])
        if self._sources is not None:
            yield from platform_metrics(self._sources, status)
        yield GaugeMetricFamily("aliquot_waiting_callers", "Blocking callers that wait", value=self._invoke.waiting)
        yield GaugeMetricFamily("aliquot_store_backlog", "Writes that are not on disk yet", value=self._store.backlog)
        well = self._store.health.problem is None
        yield GaugeMetricFamily("aliquot_store_well", "1 when the store can write", value=int(well))

    def _activations(self) -> Iterator[Metric]:
        labels = ["namespace", "action"] if self._with_names else []
        ends = CounterMetricFamily("aliquot_activations", "Ended invocations", labels=[*labels, "status", "start"])
        phases = {
            "wait": HistogramMetricFamily(
                "aliquot_wait_seconds", "Seconds from arrival to the start of the run", labels=labels
            ),
            "init": HistogramMetricFamily(
                "aliquot_init_seconds", "Seconds of initialisation in cold starts", labels=labels
            ),
            "run": HistogramMetricFamily("aliquot_run_seconds", "Seconds of runs", labels=labels),
        }
        promises = CounterMetricFamily(
            "aliquot_promises", "Ended invocations with a deadline or a cost limit", labels=[*labels, "end", "cause"]
        )
        by_labels: Iterable[tuple[tuple[str, ...], ActionMetrics]]
        by_labels = self._metrics.busiest(MAX_LABELLED) if self._with_names else [((), self._metrics.sum_of_actions())]
        for key, action in by_labels:
            for (status, start), count in sorted(action.counts.items(), key=str):
                ends.add_metric([*key, _STATUSES[status], start or "none"], count)
            for (end, cause), count in sorted(action.promises.items()):
                promises.add_metric([*key, end, cause], count)
            for phase, family in phases.items():
                histogram = getattr(action, phase)
                family.add_metric(key, [_bucket(*bucket) for bucket in histogram.cumulated()], histogram.total)
        yield ends
        yield promises
        yield from phases.values()

    def _fires(self) -> Metric:
        name, text = "aliquot_fires", "Triggers fired with active rules"
        if not self._with_names:
            return CounterMetricFamily(name, text, value=sum(self._metrics.fires.values()))
        fires = CounterMetricFamily(name, text, labels=["namespace", "trigger"])
        for key, count in sorted(self._metrics.fires.items()):
            fires.add_metric(key, count)
        return fires

    def _state(self, status: dict[str, Any]) -> Iterator[Metric]:
        labels = ["device", "kind"]
        gauges = {
            "slots": GaugeMetricFamily(
                "aliquot_device_slots", "Maximum number of concurrent invocations", labels=labels
            ),
            "running": GaugeMetricFamily("aliquot_device_running", "Invocations in flight", labels=labels),
            "shares_used": GaugeMetricFamily("aliquot_device_shares_used", "Compute held", labels=labels),
            "memory_bytes": GaugeMetricFamily("aliquot_device_memory_bytes", "Device memory", labels=labels),
            "resident_bytes": GaugeMetricFamily("aliquot_device_resident_bytes", "Device memory held", labels=labels),
            "utilisation": GaugeMetricFamily("aliquot_device_utilisation", "Compute used, last second", labels=labels),
            "borrowed": GaugeMetricFamily("aliquot_device_borrowed", "Compute used beyond shares", labels=labels),
            "lent": GaugeMetricFamily(
                "aliquot_device_lent", "Compute used beyond shares that belongs to others", labels=labels
            ),
        }
        for device in status.get("devices", ()):
            for field, gauge in gauges.items():
                if device.get(field) is not None:
                    gauge.add_metric([device["name"], device["kind"]], device[field])
        yield from gauges.values()
        sandboxes = GaugeMetricFamily("aliquot_sandboxes", "Sandboxes", labels=["device", "state"])
        counts: dict[tuple[str, str], int] = {}
        for sandbox in status.get("sandboxes", ()):
            key = (sandbox["device"], sandbox["state"])
            counts[key] = counts.get(key, 0) + 1
        for key, count in sorted(counts.items()):
            sandboxes.add_metric(key, count)
        yield sandboxes
        wanted = GaugeMetricFamily("aliquot_devices_wanted", "Devices that foreseen demand takes", labels=["kind"])
        for row in status.get("capacity", ()):
            wanted.add_metric([row["kind"]], row["wanted"])
        yield wanted
        moves = CounterMetricFamily("aliquot_moves", "Moves of sandboxes between devices", labels=["outcome"])
        for outcome, count in status.get("moves", {}).items():
            moves.add_metric([outcome], count)
        yield moves
        yield GaugeMetricFamily("aliquot_calls", "Invocations that wait or run", value=status.get("calls", 0))
        yield from self._usage(status)
        yield from self._fabric(status.get("fabric", {}))

    def _fabric(self, values: dict[str, float]) -> Iterator[Metric]:
        """Yield the metrics of the node's cache. Counters restart with each storage agent."""
        gauges = {
            "datasets": ("aliquot_datasets", "Datasets"),
            "files": ("aliquot_cache_files", "Files of datasets on the node"),
            "bytes": ("aliquot_cache_bytes", "Bytes of datasets on the node"),
            "limit_bytes": ("aliquot_cache_limit_bytes", "Limit on the bytes of datasets on the node"),
            "in_flight": ("aliquot_cache_in_flight", "Files being fetched"),
        }
        counters = {
            "hits": ("aliquot_cache_hits", "Opens that found the file cached, or being prefetched"),
            "misses": ("aliquot_cache_misses", "Opens that found the file neither cached nor being prefetched"),
            "fetched_bytes": ("aliquot_cache_fetched_bytes", "Bytes fetched from origins"),
            "evicted_bytes": ("aliquot_cache_evicted_bytes", "Bytes evicted from the cache"),
            "prefetched_bytes": ("aliquot_prefetched_bytes", "Bytes prefetched"),
            "prefetched_used_bytes": ("aliquot_prefetched_used_bytes", "Bytes prefetched in files that were opened"),
            "wasted_bytes": ("aliquot_prefetch_wasted_bytes", "Bytes prefetched in files that were not opened"),
            "waited_s": ("aliquot_data_wait_seconds", "Seconds that functions waited for files"),
            "hidden_s": ("aliquot_data_hidden_seconds", "Seconds of prefetch transfers that no function waited for"),
        }
        for field, (name, text) in gauges.items():
            if field in values:
                yield GaugeMetricFamily(name, text, value=values[field])
        for field, (name, text) in counters.items():
            if field in values:
                yield CounterMetricFamily(name, text, value=values[field])

    def _busiest(self, sums: dict[tuple[str, ...], dict[str, float]]) -> dict[tuple[str, ...], dict[str, float]]:
        """Return the functions with the most compute, and the sums of the others for each device."""
        if not self._with_names or len(sums) <= MAX_LABELLED:
            return sums
        chosen = set(nlargest(MAX_LABELLED, sums, key=lambda key: (sums[key]["compute_s"], key)))
        found = {key: sums[key] for key in sums if key in chosen}
        for key in sums.keys() - chosen:
            values = found.setdefault((OTHERS, OTHERS, key[-1]), dict.fromkeys(sums[key], 0.0))
            for field, value in sums[key].items():
                values[field] += value
        return found

    def _usage(self, status: dict[str, Any]) -> Iterator[Metric]:
        """Yield usage by function and device, or by device. Labels by sandbox would grow without limit."""
        labels = ["namespace", "action", "device"] if self._with_names else ["device"]
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            "compute_s": CounterMetricFamily("aliquot_compute_seconds", "Seconds of a whole device", labels=labels),
            "share": GaugeMetricFamily("aliquot_share_requested", "Compute requested by sandboxes", labels=labels),
            "device_bytes": GaugeMetricFamily("aliquot_used_device_bytes", "Device memory used", labels=labels),
        }
        sums: dict[tuple[str, ...], dict[str, float]] = {}
        for used in status.get("usage", ()):
            names = (used["tenant"], used["function"]) if self._with_names else ()
            values = sums.setdefault((*names, used["device"]), dict.fromkeys(families, 0))
            for field in families:
                values[field] += used[field]
        for key, values in self._busiest(sums).items():
            for field, family in families.items():
                family.add_metric(key, values[field])
        yield from families.values()


def _forecasts(found: dict[str, Any]) -> Iterator[Metric]:
    """Yield the version of forecasts, and how well it does in its last window."""
    yield GaugeMetricFamily(
        "aliquot_forecast_version", "The trained version that forecasts calls; 0 is none", value=found["version"]
    )
    watched = found["watched"]
    if watched["rows"]:
        yield GaugeMetricFamily(
            "aliquot_forecast_loss", "Weighted quantile loss of the last window of forecasts", value=watched["loss"]
        )
        yield GaugeMetricFamily(
            "aliquot_forecast_coverage",
            "Part of the values in the intervals of the last window",
            value=watched["coverage"],
        )
