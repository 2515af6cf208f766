"""An attacker with a namespace of its own, against another namespace and the operator: over HTTP.

What the platform's own routes show of others is tried in `test_namespace_isolation.py`, malformed requests in
`test_hostile_transport.py`, code that runs in `test_hostile_sandbox.py`; here are the detours: web actions, API
routes, headers, compositions.
"""

import base64
import json
import socket

import httpx
import pytest
from awaiting import wait_for_record
from hostile_namespaces import MANAGE, MARK, PRIVATE, Namespace

WEB = [{"key": "web-export", "value": True}]
OPERATORS = "/operator/v1/namespaces"


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.fixture(scope="module")
def victim(server):
    victim = Namespace(server, "victim")
    victim.action("private", PRIVATE)
    victim.put("packages/closed")
    victim.action("closed/private", PRIVATE, annotations=WEB)
    victim.put("packages/open", publish=True)
    victim.action("open/shared", PRIVATE, annotations=WEB)
    victim.action("told", "def main(args):\n    return {'user': args.get('__ow_user')}", annotations=WEB)
    victim.put("triggers/bell")
    yield victim
    victim.client.close()


@pytest.fixture(scope="module")
def attacker(server):
    attacker = Namespace(server, "attacker")
    attacker.action("echo", annotations=WEB)
    route = {"gatewayBasePath": "/shop", "gatewayPath": "/echo/{x}", "gatewayMethod": "get"}
    action = {"name": "echo", "namespace": "_", "backendMethod": "GET", "backendUrl": "x.json"}
    attacker.manage("createApi", {"apidoc": route | {"action": action}}).raise_for_status()
    yield attacker
    attacker.client.close()


def raw(server, method, path, *headers):
    """Byte by byte: a client library would tidy the path up. Status, headers and body."""
    host, _, port = server.url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: gateway", "Connection: close", *headers])
        connection.sendall(f"{head}\r\n\r\n".encode())
        heard = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = heard.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.lower(), body


# --- paths and headers that might lead to the operator's side ---------------------------------------------

CLIMBS = [
    "/api/v1/web/attacker/default/echo.json/../../../../../.." + OPERATORS,
    "/api/v1/web/attacker/default/echo.json/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e" + OPERATORS,
    "/api/v1/web/.." + OPERATORS,
    "/api/v1/web/../../.." + OPERATORS,
    "/api/v1/web//" + OPERATORS,
    "/api/v1/web/%2foperator/v1/namespaces",
    "/api/v1/web/attacker/default/echo.json\\..\\..\\..\\..\\..\\operator/v1/namespaces",
    "/api/attacker/shop/echo/..%2f..%2f..%2f..%2foperator%2fv1%2fnamespaces",
    "/api/attacker/shop/../../.." + OPERATORS,
    "/api/attacker/../.." + OPERATORS,
    "/api/.." + OPERATORS,
    "/api/%2e%2e" + OPERATORS,
    "/api/v1" + OPERATORS,
    "/api" + OPERATORS,
    "/" + OPERATORS,
    "/./operator/v1/namespaces",
    "/operator%2fv1%2fnamespaces",
    "/OPERATOR/v1/namespaces",
    "/operator;/v1/namespaces",
]


@pytest.mark.parametrize("path", CLIMBS)
def test_no_path_climbs_to_the_operators_side(server, attacker, victim, path):
    basic = base64.b64encode(attacker.key.encode()).decode()
    for method in ("GET", "POST", "OPTIONS"):
        for header in (f"Authorization: Basic {basic}", f"Authorization: Bearer {attacker.key}", "X: y"):
            status, _, body = raw(server, method, path, header)
            assert victim.name.encode() not in body
            assert status in {200, 400, 401, 404, 405}
            if status == 200 and method != "OPTIONS":  # the rest of a path is the action's to read, and no more
                assert b"__ow_path" in body


@pytest.mark.parametrize(
    "header",
    [
        "X-Original-URL: {}",
        "X-Rewrite-URL: {}",
        "X-Forwarded-Path: {}",
        "X-Forwarded-Prefix: /operator",
        "X-Forwarded-For: 127.0.0.1",
        "X-Real-IP: 127.0.0.1",
        "X-Forwarded-User: operator",
        "Forwarded: for=127.0.0.1;host=operator",
        "X-HTTP-Method-Override: DELETE",
    ],
)
def test_no_header_leads_there_either(server, attacker, victim, header):
    basic = base64.b64encode(attacker.key.encode()).decode()
    for path in (OPERATORS, "/api/v1/web/attacker/default/echo.json", "/api/attacker/shop/echo/x"):
        given = (header.format(OPERATORS), f"Authorization: Basic {basic}")
        status, _, body = raw(server, "GET", path, *given)
        assert status == (401 if path == OPERATORS else 200)
        assert victim.name.encode() not in body.replace(b"X-Forwarded", b"")


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "_method"])
def test_a_method_is_what_the_request_line_says(server, attacker, header):
    attacker.action("stays")
    asked = attacker.client.get("actions/stays", headers={header: "DELETE"}, params={"_method": "DELETE"})
    assert asked.status_code == 200
    assert attacker.client.get("actions/stays").status_code == 200
    assert httpx.get(f"{server.url}{MANAGE}/getApi", headers={header: "DELETE"}, auth=attacker.auth).status_code == 200


def test_a_host_that_is_not_ours_is_told_to_nobody_else(server, attacker):
    for host in ("evil.example", "evil.example/x", 'a"b', "a b", "a@b", ""):
        status, _, body = raw(
            server, "GET", f"{MANAGE}/getApi", f"Authorization: Bearer {attacker.key}", f"X-Forwarded-Host: {host}"
        )
        assert status == 200
        assert b"evil.example" not in body
    # The caller learns the host it used, but the server does not keep it.
    answer = httpx.get(f"{server.url}{MANAGE}/getApi", headers={"host": "evil.example"}, auth=attacker.auth)
    assert answer.json()["apis"][0]["value"]["gwApiUrl"] == "http://evil.example/api/attacker/shop"
    answer = httpx.get(f"{server.url}{MANAGE}/getApi", auth=attacker.auth)
    assert answer.json()["apis"][0]["value"]["gwApiUrl"].startswith(server.url)


# --- who one is -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("victim")
@pytest.mark.parametrize(
    "more",
    [
        {"params": {"__ow_user": "victim"}},
        {"json": {"__ow_user": "victim"}},
        {"data": {"__ow_user": "victim"}},
        {"headers": {"__ow_user": "victim", "x-ow-user": "victim"}},
        {"headers": {"authorization": "Basic dmljdGltOng="}},
        {"headers": {"cookie": "__ow_user=victim"}},
    ],
)
def test_nobody_can_say_who_they_are(server, more):
    answer = httpx.post(f"{server.url}/api/v1/web/victim/default/told.json", **more)
    assert answer.status_code == 400 or answer.json() == {"user": None}


@pytest.mark.usefixtures("victim")
def test_a_key_is_its_own_namespaces_wherever_it_is_used(server, attacker):
    answer = httpx.get(f"{server.url}/api/v1/web/victim/default/told.json", auth=attacker.auth)
    assert answer.json() == {"user": "attacker"}


def test_a_caller_key_is_not_handed_to_whose_action_it_is(server, victim, attacker):
    """A caller who sends a key to another's web action, as `require-whisk-auth` demands, must not reveal it."""
    attacker.action("thief", annotations=[*WEB, {"key": "require-whisk-auth", "value": True}])
    attacker.action("raw", annotations=[*WEB, {"key": "raw-http", "value": True}])
    for name in ("thief", "raw"):
        answer = httpx.get(f"{server.url}/api/v1/web/attacker/default/{name}.json", auth=victim.auth)
        assert answer.json()["args"]["__ow_user"] == "victim"
        assert victim.key.partition(":")[2] not in answer.text
        assert base64.b64encode(victim.key.encode()).decode() not in answer.text


def test_an_event_is_small_for_each_rule_may_have_a_copy(attacker):
    attacker.put("triggers/loud")
    answer = attacker.client.post("triggers/loud", json={"x": "x" * 2**20})
    assert answer.status_code == 413
    assert answer.json()["error"].startswith("Request larger than allowed: ")


# --- another's actions by detours -------------------------------------------------------------------------


@pytest.mark.usefixtures("victim")
@pytest.mark.parametrize("name", ["/victim/private", "/victim/closed/private", "/victim/open/../private"])
def test_what_is_not_published_runs_for_nobody_else(server, attacker, name):
    attempts = {
        "sequence": attacker.put("actions/chain", exec={"kind": "sequence", "components": [name]}).status_code,
        "rule": attacker.put("rules/rings", trigger="/_/none", action=name).status_code,
        "binding": attacker.put("packages/bound", binding={"namespace": "victim", "name": "closed"}).status_code,
    }
    assert all(status in {400, 403, 404} for status in attempts.values()), attempts
    conductor = f"def main(args):\n    return {{'action': '{name}'}} if 'error' not in args else {{'params': args}}"
    attacker.action("conductor", conductor, annotations=[*WEB, {"key": "conductor", "value": True}])
    assert MARK not in json.dumps(attacker.result("conductor"))
    assert MARK not in httpx.get(f"{server.url}/api/v1/web/attacker/default/conductor.json").text
    package, _, leaf = name.removeprefix("/victim/").rpartition("/")
    said = {"namespace": "victim", "package": package, "action": leaf}
    paths = {"/a": {"get": {"x-openwhisk": said}}}
    swagger = {"basePath": "/steal", "info": {"title": "x"}, "paths": paths}
    assert attacker.manage("createApi", {"apidoc": {"swagger": swagger}}).status_code in {403, 502}
    assert MARK not in httpx.get(f"{server.url}/api/attacker/steal/a").text


def test_what_is_published_no_more_is_out_of_reach_by_every_old_way(server, victim, attacker):
    victim.put("packages/lent", publish=True)
    victim.action("lent/shared", PRIVATE, annotations=WEB)
    attacker.put("packages/borrowed", binding={"namespace": "victim", "name": "lent"}).raise_for_status()
    components = ["/victim/lent/shared"]
    attacker.put("actions/through", exec={"kind": "sequence", "components": components}, annotations=WEB)
    route = {"gatewayBasePath": "/lent", "gatewayPath": "/x", "gatewayMethod": "get"}
    action = {"name": "lent/shared", "namespace": "victim", "backendMethod": "GET", "backendUrl": "x.json"}
    attacker.manage("createApi", {"apidoc": route | {"action": action}}).raise_for_status()
    urls = [
        "api/v1/web/attacker/borrowed/shared.json",
        "api/v1/web/attacker/default/through.json",
        "api/attacker/lent/x",
    ]

    def seen():
        answers = [httpx.get(f"{server.url}/{url}").text for url in urls]
        answers += [json.dumps(attacker.result(name)) for name in ("borrowed/shared", "through")]
        return [MARK in answer for answer in answers]

    assert seen() == [True] * 5
    victim.put("packages/lent", publish=False)
    assert seen() == [False] * 5


def test_names_in_a_request_do_not_make_another_namespaces_apis(server, victim, attacker):
    route = {"namespace": "victim", "gatewayBasePath": "/own", "gatewayPath": "/x", "gatewayMethod": "get"}
    action = {"name": "private", "namespace": "victim", "backendMethod": "GET", "backendUrl": "x.json"}
    for extra in ({}, {"spaceguid": "victim", "accesstoken": victim.key}, {"namespace": "victim"}):
        body = {"apidoc": {**route, "id": "API:victim:/own", "action": action}}
        httpx.post(f"{server.url}{MANAGE}/createApi", json=body, params=extra, auth=attacker.auth)
        for name in ("getApi", "deleteApi"):
            assert "victim" not in attacker.manage(name, {"basepath": "/own", **extra}).text
    assert httpx.get(f"{server.url}/api/victim/own/x").status_code == 404
    assert httpx.get(f"{server.url}{MANAGE}/getApi", auth=victim.auth).json() == {"apis": []}
    assert MARK not in httpx.get(f"{server.url}/api/attacker/own/x").text


def test_a_run_under_way_is_neither_followed_nor_ended_by_others(victim, attacker):
    victim.action("slow", "import time\ndef main(args):\n    print('line')\n    time.sleep(1)\n    return {}")
    activation = victim.client.post("actions/slow").json()["activationId"]
    for namespace in ("_", "victim"):
        url = f"{attacker.client.base_url}".replace("/_/", f"/{namespace}/") + f"activations/{activation}"
        for method, headers in (("GET", {"accept": "text/event-stream"}), ("GET", {}), ("DELETE", {})):
            assert attacker.client.request(method, url, headers=headers).status_code in {403, 404}
    assert wait_for_record(victim.client, activation)["response"]["success"]


@pytest.mark.usefixtures("victim")
def test_it_is_not_told_which_namespaces_and_private_actions_there_are(server):
    def shape(path, **more):
        answer = httpx.get(f"{server.url}{path}", **more)
        return answer.status_code, answer.json().get("error"), sorted(answer.headers)

    nothing = shape("/api/v1/web/nobody/default/x")
    for path in ("victim/default/private", "victim/default/nothing", "victim/closed/nothing", "victim/nopackage/x"):
        assert shape(f"/api/v1/web/{path}") == nothing
    assert shape("/api/victim/x")[:2] == shape("/api/nobody/x")[:2]
