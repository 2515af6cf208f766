"""Traces of a real server: its calls arrive as spans at a collector, through the historian's process."""

import os
import re
from pathlib import Path

import httpx
import pytest
from awaiting import wait_for_record

from aliquot.live.invocations.trace_context import span_of
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

pytest.importorskip("opentelemetry.proto", reason="needs pip install 'aliquot[otel]'")

from otlp_collector import OtlpCollector, attributes_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
CODE = "def main(args):\n    if args.get('bad'): raise ValueError('bad luck')\n    return args"


def variables(collector, **more):
    own = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_SERVICE_NAME": "lab"}
    return {**os.environ, **own, "OTEL_EXPORTER_OTLP_TIMEOUT": "2", **more}


@pytest.fixture
def collector():
    with OtlpCollector() as collector:
        yield collector


def spans_by_call(collector):
    """Return the spans of calls, by the id of the activation and then by name."""
    calls = {}
    for span in collector.spans:
        if (name := attributes_of(span).get("faas.invocation_id")) is not None:
            calls[name] = {"call": span}
    by_id = {found["call"].span_id: found for found in calls.values()}
    for span in collector.spans:
        if span.parent_span_id in by_id and "faas.invocation_id" not in attributes_of(span):
            by_id[span.parent_span_id][span.name] = span
    return calls


def wait_for_calls(collector, ids):
    return wait_until(lambda: spans_by_call(collector), lambda found: set(ids) <= set(found), what="spans of calls")


def invoke(client, name, args=None, headers=None):
    answer = client.post(f"actions/{name}", params={"blocking": "true"}, json=args or {}, headers=headers)
    return answer.json()["activationId"]


def spans_total(server):
    return {
        result: float(value) for result, value in re.findall(r'spans_total{result="(\w+)"} (\S+)', server.metrics())
    }


def test_calls_are_spans_at_the_collector(tmp_path, collector):
    with LiveServer(tmp_path / "data", env=variables(collector)) as server, server.client() as client:
        client.deploy("f", CODE)
        client.deploy("g", CODE)
        body = {"exec": {"kind": "sequence", "components": ["/_/f", "/_/g"]}}
        client.put("actions/s", json=body).raise_for_status()
        cold = invoke(client, "f")
        usual = invoke(client, "f")
        failed = invoke(client, "f", {"bad": True})
        traced = invoke(client, "f", headers=PARENT)
        sequence = invoke(client, "s", headers=PARENT)
        parts = wait_for_record(client, sequence)["logs"]
        found = wait_for_calls(collector, [cold, failed, traced, sequence, *parts])
        historian = wait_until(lambda: [p for p in server.descendants() if is_historian(p)], what="the historian")
        os.kill(historian[0], 9)
        later = [invoke(client, "f", {"bad": True}) for _ in range(3)]
        found = wait_for_calls(collector, later)
    assert usual not in found
    assert {"call", "start", "run"} <= found[cold].keys() <= {"call", "admit", "queue", "start", "run", "record"}
    assert found[cold]["call"].trace_id.hex() == cold
    assert attributes_of(found[cold]["call"])["faas.coldstart"] is True
    assert (found[failed]["call"].status.code, found[failed]["call"].parent_span_id) == (2, b"")
    assert "bad luck" in found[failed]["call"].status.message
    assert {found[each]["call"].trace_id.hex() for each in (traced, sequence, *parts)} == {TRACE}
    assert found[traced]["call"].parent_span_id.hex() == SPAN
    assert {found[part]["call"].parent_span_id.hex() for part in parts} == {span_of(sequence)}
    for call in found.values():
        whole = call["call"]
        for name, part in call.items():
            assert whole.start_time_unix_nano <= part.start_time_unix_nano <= part.end_time_unix_nano, name
            assert part.end_time_unix_nano <= whole.end_time_unix_nano, name


def is_historian(pid):
    try:
        return b"historian.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_calls_of_the_last_moment_are_sent_when_the_server_stops_and_all_of_a_fraction(tmp_path, collector):
    env = variables(collector, OTEL_BSP_SCHEDULE_DELAY="60000")
    with LiveServer(tmp_path / "data", "--trace-sample", "1", env=env) as server, server.client() as client:
        client.deploy("f", CODE)
        ids = [invoke(client, "f") for _ in range(5)]
    assert set(ids) <= set(spans_by_call(collector))


def test_a_collector_that_is_down_costs_spans_which_are_counted_and_no_call(tmp_path, collector):
    collector.status = 503
    env = variables(collector, OTEL_EXPORTER_OTLP_TIMEOUT="1", OTEL_BSP_MAX_QUEUE_SIZE="40")
    with LiveServer(tmp_path / "data", "--trace-sample", "1", env=env) as server, server.client() as client:
        client.deploy("f", CODE)
        ids = [invoke(client, "f") for _ in range(40)]
        assert len(set(ids)) == 40
        lost = wait_until(lambda: spans_total(server), lambda found: found.get("failed") and found.get("dropped"),
                          what="lost spans to be counted")  # fmt: skip
        assert lost["sent"] == 0
        collector.status = 200
        found = wait_until(
            lambda: (invoke(client, "f", {"bad": True}), spans_total(server))[1], lambda found: found["sent"],
            what="spans after the failure",
        )  # fmt: skip
        assert httpx.get(f"{server.url}/health").status_code == 200
    assert found["failed"] >= 1
