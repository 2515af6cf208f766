"""Metrics of the platform as a whole: its queues, dispatches, sandboxes, event loop and responses."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from aliquot.core.places import place_text
from aliquot.histogram import LatencyHistogram
from aliquot.live.gateway.http.response_counts import ResponseCounts
from aliquot.live.history.spans.sending import SpanCounts
from aliquot.live.invocations.platform_counters import PlatformCounters
from aliquot.live.node.cluster import NodeItem

_FAIRNESS = "The smallest part of its due that a namespace with waiting calls got in the last minute; 1 if none waits"


class PlatformSources(NamedTuple):
    """Counts that the metrics are made from, beside the platform's status."""

    counters: PlatformCounters | None
    responses: ResponseCounts
    spans: SpanCounts | None  # None if no traces are sent
    commits: LatencyHistogram | None
    nodes: list[NodeItem] | None = None  # None without a cluster


def platform_metrics(sources: PlatformSources, status: dict[str, Any]) -> Iterator[Metric]:
    """Yield the metrics that have no names of namespaces and actions."""
    yield from _queues(status.get("flows", ()))
    yield from _fairness(status)
    yield _responses(sources.responses)
    if sources.counters is not None:
        yield from _counts(sources.counters)
        yield _times("aliquot_step_seconds", "Seconds of a step of the scheduler, one a second", sources.counters.steps)
        lag = sources.counters.lag
        yield _times("aliquot_loop_lag_seconds", "Seconds by which the event loop is late, once a second", lag)
    yield from _executors(status.get("executors", {}))
    if sources.commits is not None:
        yield _times("aliquot_commit_seconds", "Seconds of a commit to disk, with all of its group", sources.commits)
    if sources.nodes is not None:
        yield from _nodes(sources.nodes)
    if sources.spans is not None:
        spans = CounterMetricFamily("aliquot_spans", "Spans of traces for the collector", labels=["result"])
        for result, count in sources.spans._asdict().items():
            spans.add_metric([result], count)
        yield spans


def _executors(figures: dict[str, float]) -> Iterator[Metric]:
    """Yield the metrics of the processes that run kernel graphs."""
    for field, name, text in (
        ("executors", "aliquot_executors", "Processes that run kernel graphs"),
        ("graphs", "aliquot_executor_graphs", "Kernel graphs in executors"),
    ):
        yield GaugeMetricFamily(name, text, value=figures.get(field, 0))
    for field, name, text in (
        ("started", "aliquot_executor_starts", "Executors that were started"),
        ("crashed", "aliquot_executor_crashes", "Executors that a run or a start of a graph has ended"),
        ("run_again", "aliquot_executor_calls_again", "Calls that ran again because another one ended their executor"),
        ("loads", "aliquot_graph_loads", "Kernel graphs that were compiled and loaded"),
        ("load_s", "aliquot_graph_load_seconds", "Seconds in which they were compiled and loaded"),
    ):
        yield CounterMetricFamily(name, text, value=figures.get(field, 0))


def _nodes(nodes: list[NodeItem]) -> Iterator[Metric]:
    state = GaugeMetricFamily("aliquot_node_state", "1 for the state that the node is in", labels=["node", "state"])
    sandboxes = GaugeMetricFamily("aliquot_node_sandboxes", "Sandboxes on the node", labels=["node"])
    trip = GaugeMetricFamily("aliquot_node_round_trip_seconds", "Time of the last ping to the node", labels=["node"])
    for node in nodes:
        state.add_metric([node.name, node.state], 1)
        sandboxes.add_metric([node.name], node.sandboxes)
        if node.round_trip_ms is not None:
            trip.add_metric([node.name], node.round_trip_ms / 1000)
    yield from (state, sandboxes, trip)


def _queues(flows: Iterable[dict[str, Any]]) -> Iterator[Metric]:
    queued = sum(flow["queued"] for flow in flows)
    oldest_s = max((flow.get("oldest_wait_s", 0.0) for flow in flows), default=0.0)
    yield GaugeMetricFamily("aliquot_queued_calls", "Calls that wait to be dispatched", value=queued)
    yield GaugeMetricFamily("aliquot_oldest_wait_seconds", "Wait of the call that has waited longest", value=oldest_s)


def _fairness(status: dict[str, Any]) -> Iterator[Metric]:
    waiting = {flow["tenant"] for flow in status.get("flows", ()) if flow["queued"]}
    found = {"accelerators": 1.0, "cpu": 1.0}
    for row in status.get("tenants", ()):
        due, got = row["due_60s"], row["got_60s"]
        if due and got is not None and row["tenant"] in waiting:
            found[row["on"]] = min(found[row["on"]], got / due)
    gauge = GaugeMetricFamily("aliquot_fairness_ratio", _FAIRNESS, labels=["on"])
    for kind, ratio in found.items():
        gauge.add_metric([kind], ratio)
    yield gauge


def _responses(responses: ResponseCounts) -> Metric:
    family = CounterMetricFamily("aliquot_http_requests", "Responses by their status", labels=["request", "code"])
    for request, counts in (("call", responses.calls), ("other", responses.others)):
        for code, count in sorted(counts.items()):
            family.add_metric([request, str(code)], count)
    return family


def _counts(counters: PlatformCounters) -> Iterator[Metric]:
    dispatches = CounterMetricFamily("aliquot_dispatches", "Dispatched calls", labels=["device", "start"])
    for (place, start), count in sorted(counters.dispatches.items()):
        dispatches.add_metric([place_text(place), start.value], count)
    yield dispatches
    stops = CounterMetricFamily("aliquot_sandbox_stops", "Sandboxes that ended", labels=["cause"])
    for cause, count in sorted(counters.ended().items()):
        stops.add_metric([cause], count)
    yield stops
    swapped = CounterMetricFamily(
        "aliquot_swapped_bytes", "Bytes of sandboxes moved between devices and the host", labels=["direction"]
    )
    swapped.add_metric(["out"], counters.swapped_out_bytes)
    swapped.add_metric(["in"], counters.swapped_in_bytes)
    yield swapped


def _times(name: str, text: str, times: LatencyHistogram) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], [(bound, count) for bound, count, _ in times.cumulated()], times.total)
    return family
