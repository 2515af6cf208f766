"""The gateway's description of itself, and the headers of every response."""

import re
import time
from datetime import datetime

import pytest
from gateway_client import ACTIONS, AS_OPERATOR, NS, PUT, gateway, on_a_loop
from places import DOCS

from aliquot.live.gateway.resources.openapi import web_endpoints
from aliquot.live.node.base import Outcome, Status

CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent",
    "access-control-allow-methods": "GET, DELETE, POST, PUT, HEAD",
}
BLOCKING = f"{ACTIONS}/echo?blocking=true"


@on_a_loop
async def test_the_host_describes_itself_to_anyone():
    async with gateway(nodejs=True) as g:
        g.auth = None
        answer = await g.get("/")
        assert answer.headers["content-type"] in "application/json; charset=UTF-8"
        host = answer.json()
        assert host["api_paths"] == ["/api/v1"]
        assert set(host["support"]) == {"github", "slack"}
        assert host["runtimes"]["python"] == [
            {"kind": "python:3.11", "default": True, "deprecated": False, "image": "aliquot/python-3.11",
             "attached": False, "requireMain": False}
        ]  # fmt: skip
        assert [runtime["kind"] for runtime in host["runtimes"]["nodejs"]] == ["nodejs:20"]
        assert host["limits"] == {
            "actions_per_minute": 2**31 - 1, "triggers_per_minute": 2**31 - 1, "concurrent_actions": 2**31 - 1,
            "sequence_length": 50,
            "max_action_payload": 64 * 2**20, "max_action_result": 64 * 2**20,
            "min_action_duration": 100, "max_action_duration": 3_600_000, "default_action_duration": 60_000,
            "min_action_memory": 128 << 20, "max_action_memory": 262_144 << 20, "default_action_memory": 256 << 20,
            "min_action_logs": 0, "max_action_logs": 10 << 20, "default_action_logs": 10 << 20,
            "default_min_action_duration": 100, "default_max_action_duration": 3_600_000,
            "default_min_action_memory": 128 << 20, "default_max_action_memory": 262_144 << 20,
            "default_min_action_logs": 0, "default_max_action_logs": 10 << 20,
        }  # fmt: skip
        api = (await g.get("/api/v1")).json()
        assert (api["api_version"], api["api_version_path"]) == ("1.0.0", "v1")
        assert set(api) == {"description", "api_version", "api_version_path", "build", "buildno", "swagger_paths"}
        assert datetime.fromisoformat(api["build"]).year >= 2024


@on_a_loop
async def test_callers_see_their_namespace_and_limits():
    async with gateway(invocations_per_minute=60, concurrent_invocations=30, fires_per_minute=60) as g:
        assert await g.say("GET", "/api/v1/namespaces") == (200, ["guest"])
        assert await g.say("GET", f"{NS}/limits") == (200, {
            "invocationsPerMinute": 60, "concurrentInvocations": 30, "firesPerMinute": 60, "minActionMemory": 128,
            "maxActionMemory": 262_144, "minActionLogs": 0, "maxActionLogs": 10, "minActionTimeout": 100,
            "maxActionTimeout": 3_600_000, "minActionConcurrency": 1, "maxActionConcurrency": 1,
            "maxParameterSize": "1048576 B", "maxActionInstances": 30,
        })  # fmt: skip


@on_a_loop
async def test_single_limits_are_refused():
    async with gateway() as g:
        text = "Inner entity level routes for limits are not yet implemented."
        assert await g.say("GET", f"{NS}/limits/x") == (400, text)
        for verb in ("PUT", "POST", "DELETE"):
            assert (await g.say(verb, f"{NS}/limits/x", json={}))[0] == 405
            assert (await g.say(verb, f"{NS}/limits", json={}))[0] == 405


@on_a_loop
async def test_every_response_has_cors_headers_and_a_request_id():
    async with gateway() as g:
        paths = [("GET", "/"), ("GET", "/nowhere"), ("GET", ACTIONS), ("POST", BLOCKING), ("PATCH", ACTIONS)]
        paths += [("POST", f"{ACTIONS}/nothing"), ("OPTIONS", ACTIONS), ("OPTIONS", "/nowhere"), ("GET", "/metrics")]
        for method, path in paths:
            answer = await g.request(method, path, headers={"x-request-id": "mine 1"})
            assert {name: answer.headers[name] for name in CORS} == CORS
            assert answer.headers["x-request-id"] == "mine 1"
            assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("given", [None, "sid_x", "", "é", "a\tb", "x" * 129])
@on_a_loop
async def test_invalid_request_ids_are_replaced(given):
    async with gateway() as g:
        headers = {} if given is None else {"x-request-id": given.encode("latin-1")}
        for path in ("/", f"{ACTIONS}/nothing"):
            answer = await g.get(path, headers=headers)
            assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
        await g.post(BLOCKING, headers=headers)
        assert re.fullmatch("[0-9a-f]{32}", g.platform.calls[0].transaction)


@on_a_loop
async def test_the_request_id_travels_with_the_call():
    async with gateway() as g:
        await g.post(BLOCKING, headers={"x-request-id": "abc"})
        assert g.platform.calls[0].transaction == "abc"


@on_a_loop
async def test_options_are_for_anyone():
    async with gateway() as g:
        g.auth = None
        for path in ("/", "/health", ACTIONS, f"{ACTIONS}/echo", "/api/v1/nowhere"):
            answer = await g.request("OPTIONS", path)
            assert (answer.status_code, answer.content) == (200, b"")
        for path in ("/api", "/api/", "/nowhere"):
            assert (await g.request("OPTIONS", path)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "methods"),
    [
        ("PATCH", f"{ACTIONS}/echo", "PUT, POST, GET, DELETE"),
        ("POST", ACTIONS, "GET"),
        ("DELETE", f"{NS}/activations", "GET"),
        ("PUT", f"{NS}/activations/{'0' * 32}", "GET, DELETE"),
        ("POST", "/", "GET"),
    ],
)
@on_a_loop
async def test_an_unknown_method_is_a_405(method, path, methods):
    async with gateway() as g:
        text = f"HTTP method not allowed, supported methods: {methods}"
        assert await g.say(method, path) == (405, text)
        assert (await g.request(method, path)).headers["allow"] == methods


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/api/v1/nowhere", "/api/v2", f"{NS}", f"{NS}/things", f"{ACTIONS}/a/b/c", "/api/v1/namespaces//"],
)  # fmt: skip
@on_a_loop
async def test_unknown_paths_are_a_404(path):
    async with gateway() as g:
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert await g.say(method, path) == (404, "The requested resource does not exist.")


@on_a_loop
async def test_health_reports_the_stores_health():
    async with gateway() as g:
        g.auth = None
        assert await g.say("GET", "/health") == (200, {"status": "ok", "complaint": None})


@on_a_loop
async def test_metrics_count_ended_invocations():
    async with gateway() as g:
        await g.post(BLOCKING)
        await g.post(BLOCKING)
        g.platform.answer = lambda _: Outcome(Status.APPLICATION_ERROR, b'{"error":1}', 0.3)
        await g.post(BLOCKING)
        page = await g.get("/metrics", headers=AS_OPERATOR, auth=None)
        assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = page.text.splitlines()
        for line in (
            'aliquot_activations_total{action="echo",namespace="guest",start="cold",status="success"} 1.0',
            'aliquot_activations_total{action="echo",namespace="guest",start="warm",status="success"} 1.0',
            'aliquot_activations_total{action="echo",namespace="guest",start="warm",status="application error"} 1.0',
            'aliquot_run_seconds_bucket{action="echo",le="0.0005",namespace="guest"} 0.0',
            'aliquot_run_seconds_bucket{action="echo",le="0.001",namespace="guest"} 2.0',
            'aliquot_run_seconds_bucket{action="echo",le="0.5",namespace="guest"} 3.0',
            'aliquot_run_seconds_bucket{action="echo",le="+Inf",namespace="guest"} 3.0',
            'aliquot_run_seconds_count{action="echo",namespace="guest"} 3.0',
            'aliquot_init_seconds_count{action="echo",namespace="guest"} 1.0',
            'aliquot_device_running{device="cpu",kind="cpu"} 1.0',
            'aliquot_sandboxes{device="cpu",state="idle"} 1.0',
            "aliquot_store_backlog 0.0",
            "aliquot_store_well 1.0",
            "aliquot_waiting_callers 0.0",
        ):
            assert _labels_sorted(line) in map(_labels_sorted, lines), line


def _labels_sorted(line):
    name, _, rest = line.partition("{")
    labels, _, value = rest.rpartition("}")
    return name, sorted(labels.split(",")), value


@on_a_loop
async def test_metrics_name_no_tenant_and_no_action_to_strangers():
    async with gateway() as g:
        other = await g.beside("secret-tenant")
        await other.put(f"{ACTIONS}/secret-action", json=PUT)
        await g.post(BLOCKING)
        await other.post(f"{ACTIONS}/secret-action?blocking=true")
        page = (await g.get("/metrics", auth=None)).text
        assert "secret" not in page
        assert "guest" not in page
        assert "echo" not in page
        for line in (
            'aliquot_activations_total{start="cold",status="success"} 1.0',
            'aliquot_activations_total{start="warm",status="success"} 1.0',
            "aliquot_run_seconds_count 2.0",
            'aliquot_run_seconds_bucket{le="+Inf"} 2.0',
            "aliquot_fires_total 0.0",
        ):
            assert _labels_sorted(line) in map(_labels_sorted, page.splitlines()), line
        # A key of a namespace, or a wrong token, is no reason to answer with the totals.
        assert (await other.get("/metrics")).status_code == 401
        wrong = {"Authorization": "Bearer wrong"}
        assert (await g.get("/metrics", headers=wrong, auth=None)).status_code == 401
        named = (await g.get("/metrics", headers=AS_OPERATOR, auth=None)).text
        assert "secret-action" in named


@on_a_loop
async def test_the_operators_token_can_be_replaced():
    async with gateway() as g:
        status, made = await g.say("POST", "/operator/v1/token", headers=AS_OPERATOR, auth=None)
        assert status == 201
        new = {"Authorization": f"Bearer {made['token']}"}
        assert (await g.get("/operator/v1/status", headers=AS_OPERATOR, auth=None)).status_code == 401
        assert (await g.get("/operator/v1/status", headers=new, auth=None)).status_code == 200
        assert (await g.say("POST", "/operator/v1/token"))[0] == 401


@on_a_loop
async def test_metrics_can_be_restricted_to_the_operator():
    for settings, open_ in (
        ({"metrics_for_operator_only": True}, False),
        ({"loopback": False}, False),
        ({"loopback": False, "metrics_for_operator_only": False}, True),
        ({}, True),
    ):
        async with gateway(**settings) as g:
            assert (await g.get("/metrics", auth=None)).status_code == (200 if open_ else 401)
            assert (await g.get("/metrics", headers=AS_OPERATOR, auth=None)).status_code == 200


@on_a_loop
async def test_the_number_of_names_in_the_metrics_is_limited():
    from aliquot.live.invocations import metrics

    counted = metrics.Metrics()
    for number in range(metrics.MAX_ACTIONS + 10):
        counted.of_action("greedy", f"a{number}")
    assert len(counted.actions) == metrics.MAX_ACTIONS // 2 + 1
    counted.of_action("guest", "mine")
    assert ("guest", "mine") in counted.actions, "another namespace's names leave some to this one"


def test_the_busiest_actions_have_labels_and_the_others_are_one():
    from aliquot.live.invocations import metrics

    counted = metrics.Metrics()
    for number in range(20):
        action = counted.of_action("guest", f"a{number:02}")
        action.counts[0, None] = number
        action.run.observe(number)
    busiest = counted.busiest(5)
    assert [key for key, _ in busiest] == [("guest", f"a{number}") for number in range(15, 20)] + [("", "")]
    assert busiest[-1][1].total == sum(range(15))
    assert sum(busiest[-1][1].run.buckets) == 15
    assert len(counted.busiest(20)) == 20


@on_a_loop
async def test_the_page_of_totals_is_not_made_for_every_stranger_who_asks(monkeypatch):
    made = []

    def render(_, **__):
        made.append(time.sleep(0.05))
        return b"a page"

    monkeypatch.setattr("aliquot.live.gateway.resources.prometheus.render_metrics", render)
    async with gateway() as g:
        for _ in range(10):
            assert (await g.get("/metrics", auth=None)).content == b"a page"
        assert len(made) == 1
        for _ in range(10):
            await g.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}, auth=None)
        assert len(made) == 2, "the other format"
        for _ in range(2):
            await g.get("/metrics", headers=AS_OPERATOR, auth=None)
        assert len(made) == 4, "the operator's page is always made"


@on_a_loop
async def test_the_openapi_document_has_every_route_and_all_its_references_resolve():
    async with gateway() as g:
        document = (await g.get("/openapi.json", auth=None)).json()
        assert document["openapi"].startswith("3.")
        described = {(method.upper(), path) for path, at in document["paths"].items() for method in at}
        assert described == {(endpoint.method, endpoint.path) for endpoint in [*g.app.endpoints, *web_endpoints()]}
        schemas = document["components"]["schemas"]
        for name in re.findall(r'"#/components/schemas/([^"]+)"', (await g.get("/openapi.json")).text):
            assert name in schemas
        ids = [operation["operationId"] for at in document["paths"].values() for operation in at.values()]
        assert len(ids) == len(set(ids))
        put = document["paths"]["/api/v1/namespaces/{namespace}/actions/{name}"]["put"]
        assert {"200", "400", "401", "403", "404", "409", "413", "415"} <= set(put["responses"])


@on_a_loop
async def test_the_openapi_document_links_an_invocation_to_its_activation():
    async with gateway() as g:
        document = (await g.get("/openapi.json", auth=None)).json()
        ids = {operation["operationId"] for at in document["paths"].values() for operation in at.values()}
        invoke = document["paths"]["/api/v1/namespaces/{namespace}/actions/{name}"]["post"]
        for status in ("200", "202", "502"):
            links = invoke["responses"][status]["links"]
            assert len(links) == 4
            assert {link["operationId"] for link in links.values()} <= ids


@on_a_loop
async def test_the_docs_page_loads_nothing_from_other_hosts():
    async with gateway() as g:
        page = await g.get("/docs", auth=None)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "Invoke an action" in page.text
        assert not re.search(r"(src|href)=.?(https?:)?//", page.text)


@on_a_loop
async def test_the_reference_names_every_route_and_every_annotation():

    from aliquot.live.catalogue.needs import ANNOTATIONS

    page = (DOCS / "reference" / "gateway.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    named = {
        (method, path)
        for _, methods, paths, *_ in rows
        for method in re.findall("`([A-Z]+)`", methods)
        for path in re.findall("`(/[^`]*)`", paths)
    }
    async with gateway() as g:
        assert named == {(endpoint.method, endpoint.path) for endpoint in g.app.endpoints}
    for annotation in ANNOTATIONS:
        assert f"`{annotation}`" in page, annotation
