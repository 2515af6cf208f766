"""The requests of `wsk`, byte for byte as its Go client writes them, and the parts of answers that it reads.

The program itself is not in the registries that tests may install from; these are its requests, read from its source:
bodies end with a line feed, absent fields may be null, and nothing to say is `null`.
"""

import json

import pytest

EXEC = {"kind": "python:default", "code": "def main(args): return {'greeting': f\"Hello, {args.get('name', 'you')}!\"}"}
NO_KEY = [{"key": "provide-api-key", "value": False}]
NOTHING = "null"  # a Go map that was never made


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.fixture(scope="module")
def wsk(server):
    with server.client(headers={"User-Agent": "OpenWhisk-CLI/1.0 (2021-04-01) linux amd64"}) as client:

        def ask(method, path, body=None, status=200):
            text = body if body is None or body is NOTHING else json.dumps(body, separators=(",", ":"))
            headers = {} if text is None else {"Content-Type": "application/json"}
            answer = client.request(method, path, content=text and f"{text}\n", headers=headers)
            assert answer.status_code == status, answer.text
            return answer.json() if answer.content else None

        yield ask


def test_actions(wsk):
    made = wsk("PUT", "actions/hello?overwrite=false", {"namespace": "_", "name": "hello", "exec": EXEC})
    assert made["exec"]["kind"] == "python:3.11"
    limits = {"timeout": None, "memory": 512, "logs": None}
    wsk("PUT", "actions/hello?overwrite=true", {"name": "hello", "limits": limits, "annotations": NO_KEY})
    assert wsk("GET", "actions/hello?code=false")["limits"]["memory"] == 512
    (item,) = wsk("GET", "actions?limit=30&skip=0")
    assert {"namespace", "name", "annotations"} <= set(item), "a line of the list is made of these"
    assert wsk("POST", "actions/hello?blocking=true&result=true", {"name": "Ann"}) == {"greeting": "Hello, Ann!"}
    assert wsk("POST", "actions/hello?blocking=true&result=true", NOTHING) == {"greeting": "Hello, you!"}
    assert set(wsk("POST", "actions/hello?blocking=false&result=false", status=202)) == {"activationId"}
    assert wsk("POST", "actions/hello?blocking=true&result=false")["response"]["success"]


def test_errors_have_what_wsk_wants_to_see(wsk):
    for path in ("actions/nobody", "triggers/nobody", "rules/nobody", "packages/nobody"):
        assert set(wsk("GET", path, status=404)) == {"error", "code"}
    bad = {"kind": "python:3", "code": "def main(args): return {'error': 1}"}
    wsk("PUT", "actions/bad?overwrite=false", {"name": "bad", "exec": bad})
    assert wsk("POST", "actions/bad?blocking=true&result=true", status=502) == {"error": 1}, "an error without a code"
    assert "code" not in wsk("POST", "actions/bad?blocking=true&result=false", status=502)
    wsk("DELETE", "actions/bad")


def test_packages(wsk):
    parameters = [{"key": "unit", "value": "m"}]
    package = {"namespace": "_", "name": "tools", "publish": False, "parameters": parameters}
    wsk("PUT", "packages/tools?overwrite=false", package)
    wsk("PUT", "actions/tools/hello?overwrite=false", {"namespace": "_", "name": "tools/hello", "exec": EXEC})
    binding = {"publish": False, "binding": {"namespace": "whisk.system", "name": "utils"}}
    wsk("PUT", "packages/utils?overwrite=false", binding)
    assert {one["name"] for one in wsk("GET", "packages?limit=30&skip=0")} == {"tools", "utils"}
    assert [one["name"] for one in wsk("GET", "actions/tools/?limit=30&skip=0")] == ["hello"]
    assert {"actions", "feeds", "binding"} <= set(wsk("GET", "packages/utils"))
    assert wsk("POST", "actions/utils/sort?blocking=true&result=true", {"lines": ["b", "a"]})["lines"] == ["a", "b"]
    sequence = {"kind": "sequence", "components": ["/_/utils/echo", "/_/hello"]}
    wsk("PUT", "actions/both?overwrite=false", {"namespace": "_", "name": "both", "exec": sequence})
    assert wsk("POST", "actions/both?blocking=true&result=true", {"name": "Bob"}) == {"greeting": "Hello, Bob!"}
    wsk("DELETE", "packages/tools", status=409)
    wsk("DELETE", "actions/tools/hello")
    wsk("DELETE", "packages/tools")


def test_triggers_and_rules(wsk):
    wsk("PUT", "triggers/uploaded?overwrite=false", {"name": "uploaded"})
    wsk("POST", "triggers/uploaded", NOTHING, status=204)
    rule = {"name": "greet", "status": "", "trigger": "/_/uploaded", "action": "/_/hello"}
    assert wsk("PUT", "rules/greet?overwrite=false", rule)["status"] == "active"
    fired = wsk("POST", "triggers/uploaded", NOTHING, status=202)
    assert wsk("GET", f"activations/{fired['activationId']}")["response"]["result"] == {}
    wsk("POST", "rules/greet", {"status": "inactive", "trigger": None, "action": None})
    assert wsk("GET", "rules/greet")["status"] == "inactive"
    (item,) = wsk("GET", "rules?limit=30&skip=0")
    assert "status" not in item, "wsk asks for each"
    assert set(wsk("GET", "triggers/uploaded")["rules"]) == {"guest/greet"}
    wsk("DELETE", "rules/greet")
    wsk("DELETE", "triggers/uploaded")


def test_a_feed(wsk, server):
    annotations = [{"key": "feed", "value": "/whisk.system/alarms/alarm"}]
    wsk("PUT", "triggers/noon?overwrite=false", {"name": "noon", "annotations": annotations})
    said = {"cron": "0 12 * * *", "triggerName": "/_/noon", "authKey": server.key}
    feed = f"{server.url}/api/v1/namespaces/whisk.system/actions/alarms/alarm?blocking=true&result=false"
    for event in ("CREATE", "READ", "DELETE"):
        assert wsk("POST", feed, {**said, "lifecycleEvent": event})["response"]["success"], event
    wsk("DELETE", "triggers/noon")


def test_activations(wsk):
    listed = wsk("GET", "activations?limit=5&name=hello&skip=0")
    assert {"activationId", "start", "end", "duration", "name", "namespace", "version", "statusCode"} <= set(listed[0])
    one = listed[0]["activationId"]
    assert set(wsk("GET", f"activations/{one}/logs")) == {"logs"}
    assert {"result", "success", "status"} <= set(wsk("GET", f"activations/{one}/result"))
    followed = wsk("GET", f"activations?docs=true&limit=0&since={listed[0]['start']}&skip=0")
    assert one in {record["activationId"] for record in followed}
    assert all(isinstance(record["logs"], list) for record in followed)


def test_the_rest(wsk, server):
    assert wsk("GET", f"{server.url}/api/v1/namespaces") == ["guest"]
    about = wsk("GET", f"{server.url}/api/v1")
    assert {"build", "buildno"} <= set(about), "`wsk property get --apibuild` prints these"
    web = [{"key": key, "value": key != "raw-http"} for key in ("web-export", "raw-http", "final")]
    wsk("PUT", "actions/hello?overwrite=true", {"name": "hello", "annotations": web})
    document = {
        "namespace": "_",
        "gatewayBasePath": "/shop",
        "gatewayPath": "/hello",
        "gatewayMethod": "GET",
        "id": "API:_:/shop",
        "apiName": "/shop",
        "action": {
            "name": "hello",
            "namespace": "_",
            "backendMethod": "GET",
            "backendUrl": f"{server.url}/api/v1/web/guest/default/hello.http",
            "authkey": server.key,
        },
    }
    management, who = f"{server.url}/api/v1/web/whisk.system/apimgmt", "accesstoken=DUMMY_TOKEN&spaceguid=x"
    made = wsk("POST", f"{management}/createApi.http?{who}&responsetype=json", {"apidoc": document})
    assert made["gwApiUrl"].endswith("/shop")
    (api,) = wsk("GET", f"{management}/getApi.http?{who}")["apis"]
    assert api["value"]["apidoc"]["paths"]["/hello"]["get"]
    wsk("DELETE", f"{management}/deleteApi.http?{who}&basepath=%2Fshop&force=true")
