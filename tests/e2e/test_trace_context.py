"""W3C's trace context on a real server: whatever a call causes belongs to its trace."""

import json
import sys

import httpx
import pytest
from awaiting import wait_for_record
from places import SUPPORT

from aliquot.live.invocations.trace_context import span_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
HEADERS = {"traceparent": PARENT, "tracestate": "vendor=1"}
TELL = (
    "import os\n"
    "def main(args): return {**args, args['name']: [os.environ.get(n) for n in ('TRACEPARENT', 'TRACESTATE')]}"
)
TELL_NODE = "exports.main = (a) => ({ found: [process.env.TRACEPARENT, process.env.TRACESTATE] });"


@pytest.fixture
def client(shared_server):
    with shared_server.client(timeout=60) as client:
        yield client


@pytest.fixture
def traced(shared_server, monkeypatch):
    monkeypatch.setenv("ALIQUOT_URL", shared_server.url)
    monkeypatch.setenv("ALIQUOT_KEY", shared_server.key)
    monkeypatch.syspath_prepend(str(SUPPORT))
    sys.modules.pop("traced", None)
    import traced

    traced.app.deploy()
    yield traced
    sys.modules.pop("traced", None)


def invoke(client, name, headers=None, args=None, path="actions"):
    answer = client.post(f"{path}/{name}", params={"blocking": "true"}, json=args or {"name": "a"}, headers=headers)
    return answer.raise_for_status().json()


def traceparent_of(record):
    return next((pair["value"] for pair in record["annotations"] if pair["key"] == "traceparent"), None)


def test_a_run_gets_its_callers_trace_and_the_next_run_does_not(client):
    client.deploy("tell", TELL)
    for _ in range(2):
        record = invoke(client, "tell", HEADERS)
        own = f"00-{TRACE}-{span_of(record['activationId'])}-01"
        assert record["response"]["result"]["a"] == [own, "vendor=1"]
        assert traceparent_of(record) == PARENT
        untraced = invoke(client, "tell")
        assert not any(untraced["response"]["result"]["a"])
        assert traceparent_of(untraced) is None


def test_a_run_of_nodejs_gets_its_callers_trace_and_the_next_run_does_not(client):
    body = {"exec": {"kind": "nodejs:default", "code": TELL_NODE}}
    client.put("actions/node", params={"overwrite": "true"}, json=body).raise_for_status()
    record = invoke(client, "node", HEADERS)
    assert record["response"]["result"]["found"] == [f"00-{TRACE}-{span_of(record['activationId'])}-01", "vendor=1"]
    assert invoke(client, "node")["response"]["result"] == {"found": [None, None]}


@pytest.mark.parametrize("headers", [HEADERS, None])
def test_the_components_of_sequences_are_spans_of_one_trace(client, headers):
    client.deploy("tell", TELL)
    for name, components in (("inner", ["tell"]), ("outer", ["tell", "inner"])):
        body = {"exec": {"kind": "sequence", "components": [f"/_/{one}" for one in components]}}
        client.put(f"actions/{name}", params={"overwrite": "true"}, json=body).raise_for_status()
    record = invoke(client, "outer", headers)
    assert traceparent_of(record) == (headers and PARENT)
    trace, flag = (TRACE, "01") if headers else (record["activationId"], "00")
    within = f"00-{trace}-{span_of(record['activationId'])}-{flag}"
    first, inner = (wait_for_record(client, one) for one in record["logs"])
    assert [traceparent_of(first), traceparent_of(inner)] == [within, within]
    last = wait_for_record(client, inner["logs"][0])
    assert traceparent_of(last) == f"00-{trace}-{span_of(inner['activationId'])}-{flag}"
    variables = last["response"]["result"]["a"]
    assert variables[0] == f"00-{trace}-{span_of(last['activationId'])}-{flag}"
    assert (variables[1] or "") == ("vendor=1" if headers else "")


def test_what_functions_call_with_the_sdk_belongs_to_their_trace(traced, monkeypatch):
    (own,), (inner, _) = traced.branch.remote()
    assert own == ""  # it begins the trace itself
    trace, parent = inner.split("-")[1:3]
    assert span_of(trace) != parent
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "vendor=1")
    (own,), (inner, state) = traced.branch.remote()
    assert [own.split("-")[1], inner.split("-")[1], state] == [TRACE, TRACE, "vendor=1"]
    assert own.split("-")[2] != inner.split("-")[2]


def test_the_tasks_of_a_workflow_belong_to_its_trace(traced, monkeypatch):
    first, ((own,), (inner, _)) = traced.flow.remote()
    assert len({value.split("-")[1] for value in (first[0], own, inner)}) == 1
    monkeypatch.setenv("TRACEPARENT", PARENT)
    first, ((own,), (inner, _)) = traced.flow.remote()
    assert {value.split("-")[1] for value in (first[0], own, inner)} == {TRACE}


def test_a_program_with_a_span_of_opentelemetry_has_its_calls_in_that_trace(traced):
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs pip install 'aliquot[otel]'")
    with sdk.TracerProvider().get_tracer("test").start_as_current_span("caller") as span:
        value, _ = traced.leaf.remote()
    assert value.split("-")[1] == f"{span.get_span_context().trace_id:032x}"
    assert value.endswith("-01")


def test_the_rules_of_a_fired_trigger_and_web_actions_belong_to_the_trace_of_the_request(client, shared_server):
    client.deploy("tell", TELL, annotations=[{"key": "web-export", "value": True}])
    client.put("triggers/t", json={}).raise_for_status()
    client.put("rules/r", json={"trigger": "/_/t", "action": "/_/tell"}).raise_for_status()
    for headers in (HEADERS, {}):
        fired = client.post("triggers/t", json={"name": "a"}, headers=headers).raise_for_status().json()["activationId"]
        record = wait_for_record(client, fired)
        assert traceparent_of(record) == headers.get("traceparent")
        called = wait_for_record(client, json.loads(record["logs"][0])["activationId"])
        assert traceparent_of(called).split("-")[1:3] == [TRACE if headers else fired, span_of(fired)]
    url = f"{shared_server.url}/api/v1/web/{shared_server.namespace}/default/tell.json"
    answer = httpx.get(url, params={"name": "a"}, headers=HEADERS).raise_for_status()
    assert answer.json()["a"][0].split("-")[1] == TRACE
