"""A dashboard for Grafana with the metrics of a server. The tests check each query in a real Prometheus."""

from typing import Any, NamedTuple

TITLE = "Aliquot"
UID = "aliquot"
_SCHEMA = 39  # of Grafana 10 and later, which read older ones, too
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_ROWS_PER_PANEL, _COLUMNS, _WIDTH = 8, 24, 8
_BY = '{namespace=~"$namespace"}'
_RATE = "[$__rate_interval]"


class Query(NamedTuple):
    """A query and the text of its lines."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A chart of the dashboard."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    text: str = ""


def _sum(metric: str, by: str, selector: str = "") -> Query:
    return Query(f"sum by ({by}) (rate({metric}{selector}{_RATE}))", "{{" + by + "}}")


def _quantiles(metric: str, selector: str = "") -> tuple[Query, ...]:
    return tuple(
        Query(f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{selector}{_RATE})))", f"p{100 * q:g}")
        for q in (0.5, 0.95, 0.99)
    )


PANELS: dict[str, tuple[Panel, ...]] = {
    "Calls": (
        Panel("Calls by status", "reqps", (_sum("aliquot_activations_total", "status", _BY),)),
        Panel("Calls by function", "reqps", (_sum("aliquot_activations_total", "action", _BY),)),
        Panel("Starts", "reqps", (_sum("aliquot_dispatches_total", "start"),), "cold, load and warm dispatches"),
        Panel("Wait", "s", _quantiles("aliquot_wait_seconds", _BY)),
        Panel("Run time", "s", _quantiles("aliquot_run_seconds", _BY)),
        Panel("Initialisation of cold starts", "s", _quantiles("aliquot_init_seconds", _BY)),
        Panel(
            "Queue",
            "short",
            (Query("aliquot_queued_calls", "waiting"), Query("aliquot_calls", "waiting or running")),
        ),
        Panel("Longest wait now", "s", (Query("aliquot_oldest_wait_seconds", "oldest"),)),
        Panel(
            "Fairness",
            "percentunit",
            (Query("aliquot_fairness_ratio", "{{on}}"),),
            "The smallest part of its due that a namespace with waiting calls got in the last minute",
        ),
    ),
    "Devices": (
        Panel(
            "Runs on devices",
            "short",
            (Query("aliquot_device_running", "{{device}}"),),
        ),
        Panel("Compute held", "short", (Query("aliquot_device_shares_used", "{{device}}"),)),
        Panel(
            "Device memory held",
            "percentunit",
            (Query("aliquot_device_resident_bytes / aliquot_device_memory_bytes", "{{device}}"),),
        ),
        Panel("Dispatches by device", "reqps", (_sum("aliquot_dispatches_total", "device"),)),
        Panel("Sandboxes", "short", (Query("sum by (state) (aliquot_sandboxes)", "{{state}}"),)),
        Panel("Stops of sandboxes", "ops", (_sum("aliquot_sandbox_stops_total", "cause"),)),
        Panel("Swapped memory", "Bps", (_sum("aliquot_swapped_bytes_total", "direction"),)),
    ),
    "Server": (
        Panel("Responses", "reqps", (_sum("aliquot_http_requests_total", "code"),)),
        Panel("Callers that wait", "short", (Query("aliquot_waiting_callers", "callers"),)),
        Panel("Lag of the event loop", "s", _quantiles("aliquot_loop_lag_seconds")),
        Panel("Steps of the scheduler", "s", _quantiles("aliquot_step_seconds")),
        Panel("Commits", "s", _quantiles("aliquot_commit_seconds")),
        Panel("Writes that wait", "short", (Query("aliquot_store_backlog", "writes"),)),
        Panel("Store can write", "short", (Query("aliquot_store_well", "1: yes"),)),
        Panel("Alarms", "short", (Query("aliquot_alarms", "alarms"), Query("aliquot_alarms_missed_total", "missed"))),
        Panel("Spans", "short", (_sum("aliquot_spans_total", "result"),), "Empty without a collector of traces"),
    ),
}


def build_dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, charts in PANELS.items():
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        top += 1
        for index, chart in enumerate(charts):
            column, row = index % (_COLUMNS // _WIDTH), index // (_COLUMNS // _WIDTH)
            place = {"h": _ROWS_PER_PANEL, "w": _WIDTH, "x": column * _WIDTH, "y": top + row * _ROWS_PER_PANEL}
            panels.append(_chart(chart, len(panels) + 1, place))
        top += -(-len(charts) // (_COLUMNS // _WIDTH)) * _ROWS_PER_PANEL
    return {
        "uid": UID,
        "title": TITLE,
        "tags": ["aliquot"],
        "schemaVersion": _SCHEMA,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_variable(), _namespace_variable()]},
        "panels": panels,
    }


def _chart(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.expr, "legendFormat": query.legend, "exemplar": True}
            for index, query in enumerate(panel.queries)
        ],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _namespace_variable() -> dict[str, Any]:
    values = "label_values(aliquot_activations_total, namespace)"
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": values, "refId": "namespaces"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
