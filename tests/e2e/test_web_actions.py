"""Web actions on a real server, with real Python and Node.js actions: every row of what OpenWhisk promises."""

import json
import shutil
import socket
from base64 import b64encode

import httpx
import pytest
from web_answers import ECHO, RETURN, annotations, args_of, error_of

OPTIONS = """
def main(args):
    return {'headers': {'Access-Control-Allow-Methods': 'MINE'}, 'body': args['__ow_method']}
"""


@pytest.fixture(scope="module")
def server(shared_server):
    web = annotations(web_export=True)
    shared_server.deploy("give", RETURN, annotations=web)
    shared_server.deploy("echo", ECHO, annotations=web, parameters=[{"key": "p", "value": "mine"}])
    shared_server.deploy("raw", ECHO, annotations=annotations(web_export=True, raw_http=True))
    shared_server.deploy("private", ECHO)
    final = annotations(web_export=True, final=True)
    shared_server.deploy("final", ECHO, annotations=final, parameters=[{"key": "fixed", "value": 1}])
    shared_server.deploy("keyed", ECHO, annotations=annotations(web_export=True, require_whisk_auth=True))
    shared_server.deploy("options", OPTIONS, annotations=annotations(web_export=True, web_custom_options=True))
    shared_server.deploy("crash", "import os\ndef main(args):\n    os._exit(1)", annotations=web)
    shared_server.deploy("raise", "def main(args):\n    raise ValueError('inside')", annotations=web)
    shared_server.deploy(
        "say", "def main(args):\n    return {'error': {'statusCode': 451, 'body': 'no'}}", annotations=web
    )
    return shared_server


@pytest.fixture(scope="module")
def web(server):
    with httpx.Client(base_url=f"{server.url}/api/v1/web/{server.namespace}/default/", timeout=60) as client:
        yield client


def give(web, result, extension="", **more):
    return web.post(f"give{extension}", json={"result": result}, **more)


# --- results --------------------------------------------------------------------------------------------

ROWS = [
    # extension, what the action returns, status, content type, body
    ("", {"body": "<b>"}, 200, "text/html; charset=UTF-8", b"<b>"),
    (".http", {"body": {"a": 1}}, 200, "application/json", b'{"a":1}'),
    (".http", {"statusCode": "202", "body": "x"}, 202, "text/html; charset=UTF-8", b"x"),
    (".http", {"body": b64encode(b"\x89PNG").decode(), "headers": {"Content-Type": "image/png"}}, 200, "image/png",
     b"\x89PNG"),
    (".http", {}, 204, None, b""),
    (".json", {"a": 1}, 200, "application/json", b'{"a":1}'),
    (".json", [1], 200, "application/json", b"[1]"),
    (".html", {"html": "<p>"}, 200, "text/html; charset=UTF-8", b"<p>"),
    (".svg", {"svg": "<svg/>"}, 200, "image/svg+xml", b"<svg/>"),
    (".text", {"text": 7}, 200, "text/plain; charset=UTF-8", b"7"),
]  # fmt: skip


@pytest.mark.parametrize(("extension", "result", "status", "kind", "body"), ROWS)
def test_a_result_is_shown_by_the_extension(web, extension, result, status, kind, body):
    answer = give(web, result, extension)
    assert (answer.status_code, answer.headers.get("content-type"), answer.content) == (status, kind, body)
    assert len(answer.headers["x-openwhisk-activation-id"]) == 32
    assert answer.headers["access-control-allow-origin"] == "*"


REFUSED = [
    (".html", {"html": 5}, 400, "Response is not valid 'text/html'."),
    (".text", {"a": 1}, 404, "Response does not include requested property."),
    (".http", [1], 400, "Response is not valid 'message/http'."),
    (".http", {"headers": {"x": "a\r\nb: c"}}, 400, "Response is not valid 'message/http'."),
    (".http", {"body": "?", "headers": {"content-type": "image/png"}}, 400,
     "Response type in header did not match generated content type."),
]  # fmt: skip


@pytest.mark.parametrize(("extension", "result", "status", "text"), REFUSED)
def test_a_result_that_does_not_fit_is_refused(web, extension, result, status, text):
    answer = give(web, result, extension)
    assert error_of(answer) == (status, text)
    assert answer.headers["x-openwhisk-activation-id"]


def test_headers_go_out_lists_as_several(web):
    headers = {"Set-Cookie": ["a=1", "b=2"], "X-N": 1, "Content-Length": "999", "Transfer-Encoding": "chunked"}
    answer = give(web, {"headers": headers, "body": "four"})
    assert answer.text == "four"
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers["x-n"] == "1"
    assert answer.headers["content-length"] == "4"
    assert "transfer-encoding" not in answer.headers


def test_a_204_is_nothing_but_its_head(server):
    """The request is written by hand, because a client library would hide a length or body that must not be there."""
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"result": {"statusCode": 204, "body": "x"}})
    head = f"POST /api/v1/web/{server.namespace}/default/give HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).lower()
    assert answer.startswith(b"http/1.1 204")
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length" not in answer
    assert b"chunked" not in answer


def test_head_has_the_head_of_the_answer_only(web):
    answer = web.head("echo.json", params={"a": "b"})
    assert answer.status_code == 200
    assert answer.content == b""
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(("action", "expected"), [
    ("crash", (400, "There was an error processing your request.")),
    ("raise", (400, "Response is not valid 'message/http'.")),
])  # fmt: skip
def test_a_failure_says_nothing_of_the_inside(web, action, expected):
    assert error_of(web.get(action)) == expected


def test_an_application_error_is_shown_by_the_same_rules(web):
    answer = web.get("say")
    assert (answer.status_code, answer.text) == (451, "no")
    assert web.get("raise.text").text == "inside"


# --- arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_every_method_is_told_with_path_query_and_headers(web, method):
    args = args_of(web.request(method, "echo.json/a%20b/c", params={"q": "1", "p": "theirs"}, headers={"X-My": "h"}))
    assert args["__ow_method"] == method.lower()
    assert args["__ow_path"] == "/a%20b/c"
    assert (args["q"], args["p"]) == ("1", "theirs")
    assert args["__ow_headers"]["x-my"] == "h"
    assert "__ow_user" not in args


def test_bodies_become_arguments(web):
    assert args_of(web.post("echo.json", json={"a": [1]}))["a"] == [1]
    assert args_of(web.post("echo.json", data={"a": "1", "b": "x y"}))["b"] == "x y"
    text = web.post("echo.json", content="grüß".encode(), headers={"content-type": "text/plain"})
    assert args_of(text)["__ow_body"] == "grüß"
    assert args_of(text)["p"] == "mine"
    octets = {"content-type": "application/octet-stream"}
    assert args_of(web.post("echo.json", content=b"\x00\xff", headers=octets))["__ow_body"] == "AP8="
    assert args_of(web.post("echo.json", json=[1]))["__ow_body"] == [1]
    assert "__ow_body" not in args_of(web.post("echo.json"))


def test_a_raw_action_gets_it_all_as_it_came(web):
    args = args_of(web.post("raw.json?a=1&__ow_user=x", json={"a": 1}))
    assert args["__ow_query"] == "a=1&__ow_user=x"
    assert args["__ow_body"] == b64encode(b'{"a":1}').decode()
    assert "a" not in args
    assert "__ow_user" not in args
    assert args_of(web.get("raw.json"))["__ow_body"] == ""


def test_reserved_and_final_names_are_refused(web):
    text = "Request defines parameters that are not allowed (e.g., reserved properties)."
    assert error_of(web.get("echo", params={"__ow_user": "x"})) == (400, text)
    assert error_of(web.post("echo", json={"__ow_headers": {}})) == (400, text)
    assert error_of(web.get("final", params={"fixed": "2"})) == (400, text)
    assert args_of(web.get("final.json", params={"free": "2"}))["fixed"] == 1


def test_json_that_is_none_is_refused(web):
    answer = web.post("echo", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("The request content was malformed:\n")


def test_what_is_large_goes_through_both_ways(server, web):
    code = "def main(args):\n    return {'text': args['__ow_body'] * 2}"
    server.deploy("double", code, annotations=annotations(web_export=True))
    body = b"0123456789abcdef" * 2**18  # 4 MiB
    plain = {"content-type": "text/plain"}
    assert web.post("double.text", content=body, headers=plain).content == 2 * body
    assert web.post("double.json", content=body, headers=plain).json() == {"text": 2 * body.decode()}
    assert web.post("double.http", content=body, headers=plain).status_code == 204
    assert args_of(web.post("echo.json", json={"large": body.decode()}))["large"] == body.decode()


# --- what callers accept -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "extension", "status"),
    [
        ("application/json", "", 406),
        ("application/json, text/*;q=0", "", 406),
        ("text/html;q=0, */*", "", 406),
        ("image/svg+xml", ".json", 406),
        ("application/json, text/*;q=0.1", "", 200),
        ("text/html;level=1", "", 200),
        ("nonsense", "", 200),
        ("*/*", ".json", 200),
    ],
)
def test_a_type_that_the_caller_does_not_accept_is_refused_with_the_type_there_is(web, accept, extension, status):
    answer = give(web, {"body": "<b>"}, extension, headers={"Accept": accept})
    assert answer.status_code == status
    assert answer.headers["x-openwhisk-activation-id"]
    if status == 406:
        kind = "application/json" if extension else "text/html; charset=UTF-8"
        assert error_of(answer)[1] == f"Resource representation is only available with these types:\n{kind}"


def test_an_error_of_the_action_is_shown_whatever_the_caller_accepts(web):
    assert web.get("say", headers={"Accept": "application/json"}).status_code == 451


# --- browsers -------------------------------------------------------------------------------------------


def test_a_preflight_is_answered_without_a_run(web):
    answer = web.options("echo", headers={"Access-Control-Request-Headers": "X-Odd, X-Other"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-methods"] == "OPTIONS, GET, DELETE, POST, PUT, HEAD, PATCH"
    assert answer.headers["access-control-allow-headers"] == "X-Odd, X-Other"
    assert "x-openwhisk-activation-id" not in answer.headers
    usual = web.options("echo").headers["access-control-allow-headers"]
    assert usual == "Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent"
    assert web.options("keyed").status_code == 200
    assert web.options("private").status_code == 404


def test_an_action_may_answer_preflights_itself(web):
    answer = web.options("options")
    assert answer.text == "options"
    assert answer.headers["access-control-allow-methods"] == "MINE"
    assert "access-control-allow-origin" not in answer.headers


def test_a_header_for_browsers_that_the_action_sets_is_not_there_twice(web):
    answer = give(web, {"headers": {"Access-Control-Allow-Origin": "https://a.example"}, "body": "x"})
    assert answer.headers.get_list("access-control-allow-origin") == ["https://a.example"]


# --- packages, bindings, sequences ----------------------------------------------------------------------


def test_a_method_that_nobody_takes_is_named(web):
    status, text = error_of(web.request("TRACE", "echo"))
    assert status == 405
    assert text.startswith("HTTP method not allowed, supported methods: ")


def test_actions_in_packages_and_through_bindings_run_as_their_owner(server):
    with server.client() as client:
        client.put("packages/kit", json={"publish": True, "parameters": [{"key": "of", "value": "kit"}]})
        body = {"exec": {"kind": "python:3.11", "code": ECHO}, "annotations": annotations(web_export=True)}
        assert client.put("actions/kit/echo", json=body).status_code == 200
    key = server.create_namespace("other")
    with server.client(key) as client:
        binding = {"binding": {"namespace": server.namespace, "name": "kit"}}
        parameters = [{"key": "of", "value": "binding"}]
        assert client.put("packages/bound", json=binding | {"parameters": parameters}).status_code == 200
        base = f"{server.url}/api/v1/web"
        assert args_of(httpx.get(f"{base}/{server.namespace}/kit/echo.json"))["of"] == "kit"
        answer = httpx.get(f"{base}/other/bound/echo.json")
        assert args_of(answer)["of"] == "binding"
        mine = client.get(f"activations/{answer.headers['x-openwhisk-activation-id']}")
        assert mine.json()["namespace"] == "other"


def test_a_sequence_and_a_composition_are_web_actions_like_any_other(server, web):
    server.deploy("upper", "def main(args):\n    return {'body': args['word'].upper()}")
    server.deploy("word", "def main(args):\n    return {'word': args['__ow_path'][1:] + args['p']}")
    conductor = """
def main(args):
    if 'body' in args:
        return {'params': {'statusCode': 203, 'body': args['body']}}
    return {'action': 'upper', 'params': {'word': args['word']}}
"""
    server.deploy("conductor", conductor, annotations=annotations(web_export=True, conductor=True))
    with server.client() as client:
        components = [f"/{server.namespace}/word", f"/{server.namespace}/upper"]
        body = {"exec": {"kind": "sequence", "components": components}, "annotations": annotations(web_export=True)}
        client.put("actions/chain", json=body).raise_for_status()
        answer = web.get("chain/ab", params={"p": "cd"})
        assert (answer.status_code, answer.text) == (200, "ABCD")
        record = client.get(f"activations/{answer.headers['x-openwhisk-activation-id']}").json()
        assert len(record["logs"]) == 2
        answer = web.get("conductor", params={"word": "x"})
        assert (answer.status_code, answer.text) == (203, "X")
        record = client.get(f"activations/{answer.headers['x-openwhisk-activation-id']}").json()
        assert {"key": "conductor", "value": True} in record["annotations"]


def test_calls_count_against_the_owners_limits(server):
    key = server.create_namespace("small")
    operator = {"authorization": f"Bearer {server.operator}"}
    quota = {"invocationsPerMinute": 1}
    httpx.patch(f"{server.url}/operator/v1/namespaces/small", headers=operator, json=quota).raise_for_status()
    with server.client(key) as client:
        body = {"exec": {"kind": "python:3.11", "code": ECHO}, "annotations": annotations(web_export=True)}
        client.put("actions/echo", json=body).raise_for_status()
    url = f"{server.url}/api/v1/web/small/default/echo.json"
    statuses = [httpx.get(url).status_code for _ in range(3)]  # a minute may begin in between
    assert statuses.count(429) >= 1
    assert set(statuses) == {200, 429}


def test_a_request_id_is_taken_over(web):
    assert web.get("echo.json", headers={"X-Request-ID": "mine"}).headers["x-request-id"] == "mine"
    assert error_of(web.get("nothing", headers={"X-Request-ID": "mine"}))[0] == 404


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_nodejs_action_answers_in_its_own_way(server, web):
    code = "function main(args) { return {statusCode: 201, headers: {'X-A': args.a}, body: {path: args.__ow_path}} }"
    server.deploy("js", code, kind="nodejs:20", annotations=annotations(web_export=True))
    answer = web.post("js/x/y", json={"a": "b"})
    assert (answer.status_code, answer.headers["x-a"], answer.json()) == (201, "b", {"path": "/x/y"})
    rejected = "function main() { return Promise.reject({statusCode: 400, body: 'bad'}) }"
    server.deploy("rejects", rejected, kind="nodejs:20", annotations=annotations(web_export=True))
    answer = web.get("rejects")
    assert (answer.status_code, answer.text) == (400, "bad")


def test_a_new_version_is_served_at_once(server, web):
    for n in range(3):
        code = f"def main(args):\n    return {{'body': '{n}'}}"
        server.deploy("changing", code, annotations=annotations(web_export=True))
        assert web.get("changing").text == str(n)
    server.deploy("changing", code, annotations=annotations(web_export=False))
    assert web.get("changing").status_code == 404
