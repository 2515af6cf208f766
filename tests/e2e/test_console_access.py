"""Access to the console: logins, sessions, rights, the pages it may be used from, and what an attacker would send."""

import json
import socket
import urllib.request

import pytest
from console_client import ConsoleClient
from live_platform import QuickPlatform

ECHO = "def main(args):\n    return args\n"
SLOW = "import time\ndef main(args):\n    for n in range(300):\n        print(n)\n        time.sleep(0.1)\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("console")) as platform:
        yield platform


def facts(platform):
    return json.loads((platform.data / "local.json").read_text())


@pytest.fixture
def client(platform):
    return ConsoleClient(facts(platform)["console"])


@pytest.fixture
def tenant(client, platform):
    assert client.log_in(key=facts(platform)["key"]).status == 200
    return client


@pytest.fixture
def operator(platform):
    client = ConsoleClient(facts(platform)["console"])
    assert client.log_in(key=facts(platform)["operator"]).status == 200
    return client


def test_the_page_and_its_files_need_no_login_and_nothing_from_elsewhere(client):
    page = client.send("GET", "/console/", Sec_Fetch_Site="cross-site", Origin=None)
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert b"http" not in page.body
    names = [line.split(b'"')[-2].decode() for line in page.body.splitlines() if b"assets/" in line]
    total = len(page.body)
    for name in names:
        file = client.send("GET", f"/console/{name}")
        assert (file.status, file.headers["x-content-type-options"]) == (200, "nosniff")
        assert "immutable" in file.headers["cache-control"]
        total += len(file.body)
    assert total < 100_000
    assert client.send("GET", "/console/assets/0000000000000000/app.js").status == 404
    assert client.send("GET", "/console/assets/../app.js").status == 404


def test_a_key_logs_in_and_the_cookie_is_for_the_console_alone(client, platform):
    assert client.send("GET", "/console/session").status == 401
    answer = client.log_in(key=facts(platform)["key"])
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/console"} <= {part.strip() for part in cookie.split(";")}
    who = client.send("GET", "/console/session").json()
    assert (who["operator"], who["namespace"]) == (False, "guest")
    first = client.cookie
    client.log_in(key=facts(platform)["key"])
    assert client.cookie != first
    old = ConsoleClient(facts(platform)["console"])
    old.cookie = first
    assert old.send("GET", "/console/session").status == 401  # a new login ends the session before


def test_the_token_names_the_session_if_another_port_has_added_cookies(client, platform):
    mine, theirs = (ConsoleClient(facts(platform)["console"]) for _ in range(2))
    mine.log_in(key=facts(platform)["operator"])
    theirs.log_in(key=facts(platform)["key"])
    for cookies in (f"{mine.cookie}; {theirs.cookie}", f"{theirs.cookie}; x=1; {mine.cookie}"):
        client.cookie = cookies
        named = client.send("GET", "/console/session", X_Aliquot_CSRF=mine.csrf)
        assert (named.status, named.json()["operator"]) == (200, True)
        assert client.send("GET", "/console/session").status == 401, "nothing says which one"
        status = client.send("GET", "/console/operator/v1/status", X_Aliquot_CSRF=mine.csrf)
        assert status.status == 200
        path = "/console/operator/v1/token"
        assert client.send("POST", path, X_Aliquot_CSRF=theirs.csrf).status == 403, "a tenant's session"
    client.cookie = theirs.cookie
    assert client.send("GET", "/console/session", X_Aliquot_CSRF=mine.csrf).status == 401, "the page's own has gone"
    client.cookie = f"aliquot_console=junk; aliquot_console; =x; {mine.cookie}"
    assert client.send("GET", "/console/session").json()["operator"] is True


def test_a_login_that_never_ends_is_dropped(client):
    with socket.create_connection(client.host.split(":")) as connection:
        head = f"POST /console/session HTTP/1.1\r\nHost: {client.host}\r\nOrigin: http://{client.host}\r\n"
        connection.sendall(f"{head}Content-Length: 100000000\r\n\r\n".encode() + b"x" * 10_000)
        connection.settimeout(60)
        assert b" 401 " in connection.recv(1000)


def test_logging_out_ends_the_session(tenant):
    assert tenant.send("DELETE", "/console/session", X_Aliquot_CSRF="wrong").status == 403
    assert tenant.send("DELETE", "/console/session").status == 200
    assert tenant.send("GET", "/console/session").status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "same-site", "Origin": None},  # a page on another port of this machine
        {"Sec_Fetch_Site": "cross-site", "Origin": None},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/console/api/v1/observe/overview"), ("POST", "/console/session")]
)
def test_requests_of_other_pages_are_refused(tenant, method, path, headers):
    answer = tenant.send(method, path, None if method == "GET" else {"key": "x"}, **headers)
    assert answer.status in {400, 403}
    assert b"flows" not in answer.body


def test_a_change_needs_the_token_of_the_session(tenant):
    path = "/console/api/v1/namespaces/_/actions/unwanted?overwrite=true"
    body = {"exec": {"kind": "python:3.11", "code": ECHO}}
    for csrf in (None, "", "wrong"):
        assert tenant.send("PUT", path, body, X_Aliquot_CSRF=csrf).status == 403
    assert tenant.send("PUT", path, body, Origin=None, Sec_Fetch_Site=None).status == 403
    assert tenant.send("GET", "/console/api/v1/namespaces/_/actions/unwanted").status == 404
    assert tenant.send("PUT", path, body).status == 200
    assert tenant.send("DELETE", "/console/api/v1/namespaces/_/actions/unwanted").status == 200


def test_a_tenant_gets_neither_the_operators_routes_nor_other_namespaces(tenant, platform):
    platform.create_namespace("stranger")
    assert tenant.send("GET", "/console/operator/v1/status").status == 403
    assert tenant.send("GET", "/console/api/v1/namespaces/stranger/actions").status == 403
    assert tenant.send("GET", "/console/as/stranger/api/v1/namespaces/_/actions").status == 403
    seen = tenant.send("GET", "/console/api/v1/observe/overview").json()
    assert not {"tenants", "pid"} & set(seen)
    assert all("tenant" not in flow for flow in seen["flows"])


def test_the_operator_sees_all_and_chooses_a_namespace(operator):
    assert operator.send("GET", "/console/operator/v1/status").status == 200
    assert "guest" in operator.send("GET", "/console/session").json()["namespaces"]
    assert operator.send("GET", "/console/as/guest/api/v1/namespaces/_/actions").status == 200
    assert operator.send("GET", "/console/as/nobody/api/v1/namespaces/_/actions").status == 403
    assert operator.send("GET", "/console/api/v1/namespaces/_/actions").status == 403
    assert operator.send("GET", "/console/as/guest/operator/v1/status").status == 403


@pytest.mark.parametrize(
    "path",
    [
        "/console/api/v1/web/guest/default/page",
        "/console/metrics",
        "/console/..%2fapi/v1/web/x",
        "/console/as/guest/api/v1/web/guest/default/page",
        "/console/as/gu%65st/api/v1/observe/overview",
        "/console/as//api/v1/web/x",
        "/console%2fapi/v1/observe/overview",
        "/console/api/v1/%77eb/guest/default/page",
        "/api/v1/observe/overview",
        "/metrics",
        "/consoleapi/v1/observe/overview",
    ],
)
def test_nothing_else_is_passed_on(tenant, path):
    """A tenant's pages must never be served from the console's own address."""
    assert tenant.send("GET", path).status == 404


def test_answers_have_no_headers_that_let_other_pages_read_them(tenant):
    answer = tenant.send("GET", "/console/api/v1/observe/overview")
    assert not any(name.startswith("access-control-") for name in answer.headers)
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"


def test_a_code_of_the_command_logs_in_once(client, platform):
    address = platform.aliquot("console", "--no-browser").strip()
    code = address.partition("#code=")[2]
    assert client.log_in(code=code).json()["operator"]
    again = ConsoleClient(facts(platform)["console"])
    assert again.log_in(code=code).status == 401
    own = platform.aliquot("console", "--no-browser", "--tenant").strip().partition("#code=")[2]
    assert again.log_in(code=own).json()["namespace"] == "guest"


def test_a_key_that_is_taken_back_ends_its_sessions(client, platform):
    key = platform.create_namespace("leaver")
    assert client.log_in(key=key).status == 200
    platform.operate("POST", "namespaces/leaver/keys", json={"keep": False})
    assert client.send("GET", "/console/session").status == 401
    assert client.send("GET", "/console/api/v1/observe/overview").status == 401


def test_a_stream_ends_when_its_key_is_taken_back(platform):
    key = platform.create_namespace("watcher")
    client = ConsoleClient(facts(platform)["console"])
    client.log_in(key=key)
    path = "/console/api/v1/namespaces/_/actions/slow"
    assert client.send("PUT", path, {"exec": {"kind": "python:3.11", "code": SLOW}}).status == 200
    begun = client.send("POST", path, {}).json()["activationId"]
    headers = {"Cookie": client.cookie, "Accept": "text/event-stream", "Sec-Fetch-Site": "same-origin"}
    url = f"http://{client.host}/console/api/v1/namespaces/_/activations/{begun}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as stream:
        assert stream.readline()
        new = platform.operate("POST", "namespaces/watcher/keys", json={"keep": False})["key"]
        rest = stream.read()  # it ends long before the run does
    assert b"event: result" not in rest
    own = {"ALIQUOT_URL": platform.url, "ALIQUOT_KEY": new}
    platform.aliquot("activation", "cancel", begun, **own)  # the server would wait for it when it stops


def test_sessions_survive_a_restart_and_end_with_the_rotated_token(tmp_path):
    with QuickPlatform(tmp_path) as platform:
        key = platform.create_namespace("stayer")
        client, operator = (ConsoleClient(facts(platform)["console"]) for _ in range(2))
        client.log_in(key=key)
        operator.log_in(key=facts(platform)["operator"])
        platform.stop()
        platform.start()
        client.host = operator.host = ConsoleClient(facts(platform)["console"]).host
        assert client.send("GET", "/console/session").json()["namespace"] == "stayer"
        assert operator.send("GET", "/console/operator/v1/status").status == 200
        platform.aliquot("token", "--rotate")
        assert operator.send("GET", "/console/operator/v1/status").status == 401
        stored = b"".join(file.read_bytes() for file in platform.data.glob("aliquot.db*"))
        assert client.cookie.partition("=")[2].encode() not in stored
        for _ in range(10):
            assert client.log_in(key="00000000-0000-0000-0000-000000000000:x").status == 401
        assert client.log_in(key="00000000-0000-0000-0000-000000000000:x").status == 429


def test_the_console_can_be_off_and_its_port_chosen(tmp_path):
    with QuickPlatform(tmp_path, "--console-port", "none") as platform:
        assert facts(platform)["console"] is None
        assert "the server has no console" in platform.aliquot("console", code=2)


def test_beyond_this_machine_nobody_logs_in_without_https(tmp_path):
    with QuickPlatform(tmp_path, "--host", "0.0.0.0") as platform:  # noqa: S104 - the case in question
        client = ConsoleClient(facts(platform)["console"])
        answer = client.log_in(key=facts(platform)["key"])
        assert answer.status == 403
        assert "needs HTTPS" in answer.json()["error"]
