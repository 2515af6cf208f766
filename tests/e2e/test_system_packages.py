"""The packages of whisk.system on a real server: everybody's to call, and nobody's to change."""

import httpx
import pytest

from aliquot.live.catalogue.system.contents import PACKAGES
from aliquot.live.catalogue.system.packages import system_entities
from aliquot.live.store.records import SYSTEM, Action, Package

ACTIONS = [(package.name, action) for package in PACKAGES for action in package.actions]
SAMPLES = [(package, action) for package, action in ACTIONS if action.sample_output is not None]


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.fixture(scope="module")
def client(server):
    user, _, secret = server.key.partition(":")
    with httpx.Client(base_url=f"{server.url}/api/v1/namespaces/", auth=(user, secret), timeout=60) as client:
        yield client


def invoke(client, name, arguments):
    """Status and result."""
    options = {"blocking": "true", "result": "true"}
    answer = client.post(f"whisk.system/actions/{name}", params=options, json=arguments)
    return answer.status_code, answer.json()


@pytest.mark.parametrize(("package", "action"), SAMPLES, ids=lambda it: it if isinstance(it, str) else it.name)
def test_each_action_does_what_its_sample_says(client, package, action):
    assert invoke(client, f"{package}/{action.name}", action.sample_input) == (200, action.sample_output)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("utils/sort", {"payload": "b,a,c", "separator": ","}, {"lines": ["a", "b", "c"], "length": 3}),
        ("utils/sort", {}, {"lines": [], "length": 0}),
        ("utils/sort", {"lines": ["10", 9]}, {"lines": ["10", 9], "length": 2}),  # by their text
        ("utils/split", {"payload": "a\r\nb\nc"}, {"lines": ["a", "b", "c"], "payload": "a\r\nb\nc"}),
        ("utils/split", {"payload": 1.5, "separator": "."}, {"lines": ["1", "5"], "payload": 1.5}),
        ("utils/head", {"lines": ["a", "b"]}, {"lines": ["a"], "num": 1}),
        ("utils/cat", {}, {"lines": [], "payload": ""}),
        ("utils/echo", {}, {}),
        ("utils/namespace", {}, {"namespace": "guest"}),
        ("samples/greeting", {}, {"payload": "Hello, stranger from somewhere!"}),
        ("samples/hello", {}, {"greeting": "Hello stranger!"}),
    ],
)
def test_parameters_mean_what_openwhisk_means(client, name, arguments, result):
    assert invoke(client, name, arguments) == (200, result)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("utils/smash", {"a": 1}, "Expected an argument '$fieldName' of type 'string'."),
        ("utils/split", {}, "Expected an argument 'payload'."),
        ("utils/hosturl", {"web": True, "trigger": True}, "triggers are not allowed for web actions."),
        ("utils/hosturl", {"trigger": True, "path": "a/b"}, "triggers are not allowed in packages."),
    ],
)
def test_what_they_cannot_do_is_an_application_error(client, name, arguments, error):
    assert invoke(client, name, arguments) == (502, {"error": error})


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({}, "namespaces/guest/actions"),
        ({"path": "a"}, "namespaces/guest/actions/a"),
        ({"path": "t", "trigger": True}, "namespaces/guest/triggers/t"),
        ({"path": "a", "web": True}, "web/guest/default/a.json"),
        ({"path": "p/a", "web": True, "ext": ".http"}, "web/guest/p/a.http"),
        ({"web": True}, "web/guest"),
    ],
)
def test_hosturl_knows_where_things_are(server, client, arguments, path):
    assert invoke(client, "utils/hosturl", arguments) == (200, {"url": f"{server.url}/api/v1/{path}"})


def test_the_date_is_of_this_moment(client):
    _, before = invoke(client, "utils/date", {})
    _, after = invoke(client, "utils/date", {})
    assert before["date"] < after["date"]
    assert before["date"].endswith("Z")


def test_whoever_calls_has_the_record_and_its_logs(client):
    answer = client.post("whisk.system/actions/samples/helloWorld", params={"blocking": "true"}, json={"payload": "me"})
    record = client.get(f"_/activations/{answer.json()['activationId']}").json()
    assert record["namespace"] == "guest"
    assert record["logs"][0].endswith("stdout: hello me!")
    assert {"key": "path", "value": "whisk.system/samples/helloWorld"} in record["annotations"]


def test_nobody_writes_to_the_system(client):
    body = {"exec": {"kind": "python:3.11", "code": "def main(args): return {}"}}
    for method in ("PUT", "DELETE"):
        answer = client.request(method, "whisk.system/actions/utils/echo?overwrite=true", json=body)
        assert answer.status_code == 403
    assert invoke(client, "utils/echo", {"a": 1}) == (200, {"a": 1})


def test_the_operator_does_not_see_it_as_a_tenant_and_cannot_make_it_one(server):
    headers = {"authorization": f"Bearer {server.operator}"}
    url = f"{server.url}/operator/v1/namespaces"
    assert [one["name"] for one in httpx.get(url, headers=headers).json()] == ["guest"]
    answer = httpx.post(url, headers=headers, json={"name": SYSTEM})
    assert answer.status_code == 409
    assert answer.json()["error"] == "namespace whisk.system is the platform's own"


def test_it_is_the_same_at_every_start():
    first, second = list(system_entities()), list(system_entities())
    assert first == second
    assert all(entity.publish and entity.namespace == SYSTEM for entity in first)


def test_every_action_says_what_it_does_and_takes():
    entities = list(system_entities())
    assert [entity.name for entity in entities if isinstance(entity, Package)] == ["alarms", "samples", "utils"]
    for entity in entities:
        assert entity.annotation("description")
        if isinstance(entity, Action):
            assert entity.annotation("feed", default=False) is entity.name.startswith("alarms/")
            assert '"""' in entity.exec.code
