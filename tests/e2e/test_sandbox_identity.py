"""The identity of a sandbox: its environment, the key for calling back, and its end with the action it serves."""

import time

import httpx
import pytest

from aliquot.testing.waiting import wait_until

TELL = """
import os

AT_INIT = {name: value for name, value in os.environ.items() if name.startswith("__OW_")}
MINE = os.environ.get("mine")

def main(args):
    now = {name: value for name, value in os.environ.items() if name.startswith("__OW_")}
    return {"init": AT_INIT, "run": now, "mine": MINE, "pid": os.getpid(), "args": args}
"""
WITH_KEY = {"annotations": [{"key": "provide-api-key", "value": True}]}


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def put(client, path, **body):
    answer = client.put(path, params={"overwrite": "true"}, json=body)
    assert answer.status_code == 200, answer.text


def action(client, name, code=TELL, **more):
    put(client, f"actions/{name}", exec={"kind": "python:3.11", "code": code}, **more)


def call(client, name, payload=None, **headers):
    answer = client.post(f"actions/{name}", params={"blocking": "true"}, json=payload or {}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tell(client, name, payload=None, **headers):
    return call(client, name, payload, **headers)["response"]["result"]


def annotations(record):
    return {pair["key"]: pair["value"] for pair in record["annotations"]}


def opens(server, key):
    """The namespace that the key opens, or the status it is refused with."""
    user, _, secret = key.partition(":")
    answer = httpx.get(f"{server.url}/api/v1/namespaces", auth=(user, secret))
    return answer.json()[0] if answer.status_code == 200 else answer.status_code


# --- what code is told ----------------------------------------------------------------------------------------


def test_code_is_told_at_its_import_for_which_activation_it_starts(client):
    action(client, "told")
    before_ms = time.time() * 1000
    first = call(client, "told", **{"x-request-id": "first"})
    result = first["response"]["result"]
    at_init = result["init"]
    assert at_init["__OW_ACTIVATION_ID"] == first["activationId"]
    assert at_init["__OW_TRANSACTION_ID"] == "first"
    assert at_init["__OW_NAMESPACE"] == "guest"
    assert at_init["__OW_ACTION_NAME"] == "/guest/told"
    assert at_init["__OW_ACTION_VERSION"] == "0.0.1"
    assert int(before_ms) + 60_000 <= float(at_init["__OW_DEADLINE"]) <= time.time() * 1000 + 60_000
    second = call(client, "told", **{"x-request-id": "second"})["response"]["result"]
    assert second["init"] == at_init
    assert second["run"]["__OW_TRANSACTION_ID"] == "second"
    assert second["run"]["__OW_ACTIVATION_ID"] != at_init["__OW_ACTIVATION_ID"]


def test_a_component_is_told_of_its_own_activation_and_the_callers_transaction(client):
    action(client, "told")
    put(client, "actions/alone", exec={"kind": "sequence", "components": ["/_/told"]})
    record = call(client, "alone", **{"x-request-id": "whole"})
    told = record["response"]["result"]["run"]
    assert told["__OW_ACTIVATION_ID"] == record["logs"][0]
    assert told["__OW_TRANSACTION_ID"] == "whole"


# --- keys -----------------------------------------------------------------------------------------------------


def test_a_function_gets_a_key_only_if_its_owner_says_so(server, client):
    action(client, "plain")
    result = tell(client, "plain")
    assert "__OW_API_KEY" not in result["init"]
    assert "__OW_API_KEY" not in result["run"]
    action(client, "keyed", **WITH_KEY)
    result = tell(client, "keyed")
    key = result["run"]["__OW_API_KEY"]
    assert result["init"]["__OW_API_KEY"] == key
    assert key != server.key
    assert opens(server, key) == "guest"
    assert tell(client, "keyed")["run"]["__OW_API_KEY"] == key, "one a sandbox"


def test_the_key_is_the_callers_and_not_the_owners(server, client):
    put(client, "packages/tools", publish=True)
    action(client, "tools/keyed", **WITH_KEY)
    with server.client(server.create_namespace("visitor")) as visitor:
        result = tell(visitor, "../../guest/actions/tools/keyed")
    assert opens(server, result["run"]["__OW_API_KEY"]) == "visitor"
    assert result["run"]["__OW_NAMESPACE"] == "visitor"


def test_the_key_ends_with_its_sandbox_and_leaves_what_others_remember_alone(server, client):
    action(client, "brief", **WITH_KEY)
    key = tell(client, "brief")["run"]["__OW_API_KEY"]
    assert opens(server, key) == "guest"
    assert client.delete("actions/brief").status_code == 200
    wait_until(lambda: opens(server, key), lambda found: found != "guest", what="the key to be refused")
    assert opens(server, key) == 401
    assert client.get("actions").status_code == 200


def test_a_key_of_a_sandbox_that_dies_ends_with_it(server, client):
    code = TELL.replace("def main(args):", "def main(args):\n    if args.get('die'): os._exit(1)")
    action(client, "mortal", code, **WITH_KEY)
    key = tell(client, "mortal")["run"]["__OW_API_KEY"]
    assert opens(server, key) == "guest"
    client.post("actions/mortal", params={"blocking": "true"}, json={"die": True})
    wait_until(lambda: opens(server, key), lambda found: found != "guest", what="the key to be refused")
    assert tell(client, "mortal")["run"]["__OW_API_KEY"] != key


def test_a_sandboxs_key_does_not_reach_the_operators_side_and_is_not_logged(server, client):
    action(client, "keyed", **WITH_KEY)
    key = tell(client, "keyed")["run"]["__OW_API_KEY"]
    user, _, secret = key.partition(":")
    for auth in ({"auth": (user, secret)}, {"headers": {"authorization": f"Bearer {key}"}}):
        assert httpx.get(f"{server.url}/operator/v1/namespaces", **auth).status_code == 401
    assert secret not in server.log.read_text()


# --- records of what is reached through packages --------------------------------------------------------------


def test_a_record_names_the_real_package_and_the_binding(server, client):
    with server.client(server.create_namespace("library")) as owner:
        put(owner, "packages/kit", publish=True, parameters=[{"key": "p", "value": 1}])
        action(owner, "kit/tell")
        put(owner, "actions/kit/twice", exec={"kind": "sequence", "components": ["/_/kit/tell"]})
    put(client, "packages/mine", binding={"namespace": "library", "name": "kit"})
    for name, kind in (("mine/tell", "python:3.11"), ("mine/twice", "sequence")):
        record = call(client, name)
        told = annotations(record)
        assert record["namespace"] == "guest"
        assert record["name"] == name.partition("/")[2]
        assert told["path"] == f"library/kit/{record['name']}"
        assert told["binding"] == "guest/mine"
        assert told["kind"] == kind
    direct = annotations(call(client, "../../library/actions/kit/tell"))
    assert direct["path"] == "library/kit/tell"
    assert "binding" not in direct


# --- no stale sandbox -----------------------------------------------------------------------------------------


def test_what_is_deleted_and_made_again_never_runs_in_the_old_sandbox(client):
    put(client, "packages/p")
    for name in ("again", "p/again"):
        action(client, name, "def main(args): return {'made': 1}")
        assert tell(client, name) == {"made": 1}
        client.delete(f"actions/{name}").raise_for_status()
        action(client, name, "def main(args): return {'made': 2}")
        assert tell(client, name) == {"made": 2}


def test_a_package_that_is_made_again_with_other_parameters_is_what_counts(client):
    for value in ("one", "two"):
        put(client, "packages/life", parameters=[{"key": "mine", "value": value, "init": True}])
        action(client, "life/tell")
        assert tell(client, "life/tell")["mine"] == value
        client.delete("packages/life", params={"force": "true"}).raise_for_status()


def test_init_parameters_that_change_anywhere_on_the_way_are_a_new_sandboxs(client):
    put(client, "packages/base", parameters=[{"key": "mine", "value": "package", "init": True}])
    action(client, "base/tell")
    put(client, "packages/bound", binding={"namespace": "_", "name": "base"})
    assert tell(client, "base/tell")["mine"] == "package"
    assert tell(client, "bound/tell")["mine"] == "package"
    put(client, "packages/base", parameters=[{"key": "mine", "value": "changed", "init": True}])
    assert tell(client, "base/tell")["mine"] == "changed"
    assert tell(client, "bound/tell")["mine"] == "changed"
    put(client, "packages/bound", parameters=[{"key": "mine", "value": "bound", "init": True}])
    assert tell(client, "base/tell")["mine"] == "changed"
    assert tell(client, "bound/tell")["mine"] == "bound"
    action(client, "base/tell", parameters=[{"key": "mine", "value": "own", "init": True}])
    assert tell(client, "bound/tell")["mine"] == "own"


def test_an_init_parameter_that_the_first_caller_gives_is_a_variable_and_never_an_argument(client):
    action(client, "given", parameters=[{"key": "mine", "value": "default", "init": True}, {"key": "a", "value": 1}])
    first = tell(client, "given", {"mine": {"x": 1}, "b": 2})
    assert (first["mine"], first["args"]) == ('{"x": 1}', {"a": 1, "b": 2})
    second = tell(client, "given", {"mine": "later"})
    assert (second["mine"], second["args"], second["pid"]) == ('{"x": 1}', {"a": 1}, first["pid"])


def test_init_parameters_of_a_component_come_from_what_it_is_given(client):
    action(client, "before", "def main(args): return {'mine': 'passed on', 'b': 2}")
    action(client, "component", parameters=[{"key": "mine", "value": "default", "init": True}])
    put(client, "actions/both", exec={"kind": "sequence", "components": ["/_/before", "/_/component"]})
    result = tell(client, "both")
    assert (result["mine"], result["args"]) == ("passed on", {"b": 2})


def test_plain_parameters_that_change_leave_the_sandbox_alone_and_count_at_once(client):
    put(client, "packages/quiet", parameters=[{"key": "a", "value": 1}])
    action(client, "quiet/tell")
    first = tell(client, "quiet/tell")
    put(client, "packages/quiet", parameters=[{"key": "a", "value": 2}])
    second = tell(client, "quiet/tell")
    assert (first["args"], second["args"]) == ({"a": 1}, {"a": 2})
    assert first["pid"] == second["pid"]


def test_a_binding_to_another_package_runs_the_other(client):
    for name in ("left", "right"):
        put(client, f"packages/{name}")
        action(client, f"{name}/which", f"def main(args): return {{'which': '{name}'}}")
    for name in ("left", "right"):
        put(client, "packages/either", binding={"namespace": "_", "name": name})
        assert tell(client, "either/which") == {"which": name}
