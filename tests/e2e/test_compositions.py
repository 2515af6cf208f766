"""Sequences and conductors on a real server: what callers get, what is recorded, and what stops and crashes do."""

import os
import signal
import time

import httpx
import pytest
from awaiting import wait_for_record, wait_until_busy
from event_reader import STREAM, events_of, text

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer

ECHO = "def main(args): return args"
ADD = "def main(args): return {'n': args.get('n', 0) + args.get('by', 1)}"
SLOW = """
import time

def main(args):
    time.sleep(args.get("s", 0.3))
    return {**args, "slept": True}
"""
# Counts down from n by calling `add` with -1, then ends.
COUNT_DOWN = """
def main(args):
    if "error" in args:
        return {"params": {"failed": args["error"], "state": args.get("state")}}
    if args.get("n", 0) <= 0:
        return {"params": {"n": args["n"], "turns": args.get("turns", 0)}}
    turns = args.get("turns", 0) + 1
    return {"action": args.get("next", "add"), "params": {"n": args["n"], "by": -1}, "state": {"turns": turns}}
"""
CONDUCTOR = {"annotations": [{"key": "conductor", "value": True}]}


@pytest.fixture(scope="module")
def server(shared_server):
    shared_server.deploy("echo", ECHO)
    shared_server.deploy("add", ADD)
    shared_server.deploy("slow", SLOW)
    shared_server.deploy("fail", "def main(args): return {'error': 'no', 'other': 1}")
    shared_server.deploy("die", "import os\ndef main(args): os._exit(3)")
    shared_server.deploy("list", "def main(args): return [args, 1]")
    shared_server.deploy("length", "def main(args): return {'length': len(args)}")
    shared_server.deploy("ten", ADD, parameters=[{"key": "by", "value": 10}], limits={"memory": 512})
    shared_server.deploy("count", COUNT_DOWN, **CONDUCTOR)
    return shared_server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def compose(client, name, *components, **more):
    exec_ = {"kind": "sequence", "components": [f"/_/{one}" for one in components]}
    answer = client.put(f"actions/{name}", params={"overwrite": "true"}, json={"exec": exec_, **more})
    assert answer.status_code == 200, answer.text


def call(client, name, payload=None, **params):
    return client.post(f"actions/{name}", params={"blocking": "true", **params}, json=payload or {})


def annotations(record):
    return {pair["key"]: pair["value"] for pair in record["annotations"]}


# --- sequences ------------------------------------------------------------------------------------------------


def test_a_sequence_runs_its_components_one_after_the_other(client):
    compose(client, "three", "add", "ten", "add")
    answer = call(client, "three", {"n": 1})
    assert answer.status_code == 200
    record = answer.json()
    assert answer.headers["x-openwhisk-activation-id"] == record["activationId"]
    assert record["response"]["result"] == {"n": 13}
    assert record["name"] == "three"
    assert len(record["logs"]) == 3, "a composition's logs are in the answer"
    assert "cause" not in record
    told = annotations(record)
    assert told["topmost"] is True
    assert told["kind"] == "sequence"
    assert told["path"] == "guest/three"
    assert told["limits"]["memory"] == 512
    assert "waitTime" in told
    assert not {"initTime", "causedBy", "conductor"} & set(told)
    parts = [wait_for_record(client, part) for part in record["logs"]]
    assert [part["name"] for part in parts] == ["add", "ten", "add"]
    assert [part["response"]["result"] for part in parts] == [{"n": 2}, {"n": 12}, {"n": 13}]
    assert {part["cause"] for part in parts} == {record["activationId"]}
    assert {annotations(part)["causedBy"] for part in parts} == {"sequence"}
    assert record["duration"] == sum(part["duration"] for part in parts)
    assert wait_for_record(client, record["activationId"]) == record
    assert call(client, "three", {"n": 1}, result="true").json() == {"n": 13}


def test_what_a_component_needs_of_defaults_it_gets_and_the_sequence_has_none(client):
    compose(client, "defaults", "echo", parameters=[{"key": "mine", "value": 1}])
    assert call(client, "defaults", {"x": 1}, result="true").json() == {"x": 1}


def test_arrays_go_from_one_to_the_next(client):
    compose(client, "arrays", "list", "length")
    assert call(client, "arrays", {"a": 1}, result="true").json() == {"length": 2}
    compose(client, "array", "echo", "list")
    assert call(client, "array", {"a": 1}).json() == [{"a": 1}, 1]


def test_a_sequence_stops_at_the_first_error(client):
    compose(client, "stops", "add", "fail", "add")
    answer = call(client, "stops")
    assert answer.status_code == 502
    record = answer.json()
    assert record["response"]["status"] == "application error"
    assert record["response"]["result"] == {"error": "no"}
    assert len(record["logs"]) == 2


def test_a_component_that_dies_ends_the_sequence_as_itself(client):
    compose(client, "dies", "die", "add")
    answer = call(client, "dies")
    assert answer.status_code == 502
    response = answer.json()["response"]
    assert response["status"] == "action developer error"
    assert response["result"]["error"] == "The action did not produce a valid response and exited unexpectedly."


def test_a_sequence_in_a_sequence_has_a_record_between(client):
    compose(client, "inner", "add", "add")
    compose(client, "outer", "inner", "add")
    record = call(client, "outer").json()
    assert record["response"]["result"] == {"n": 3}
    inner = wait_for_record(client, record["logs"][0])
    told = annotations(inner)
    assert (inner["name"], inner["cause"]) == ("inner", record["activationId"])
    assert (told["topmost"], told["causedBy"], told["kind"]) == (False, "sequence", "sequence")
    assert [wait_for_record(client, part)["cause"] for part in inner["logs"]] == [inner["activationId"]] * 2
    assert record["duration"] == inner["duration"] + wait_for_record(client, record["logs"][1])["duration"]


def test_a_component_that_is_deleted_while_another_runs_is_missed_in_its_turn(server, client):
    server.deploy("brief", ECHO)
    compose(client, "misses", "slow", "brief")
    started = client.post("actions/misses", json={"s": 0.5}).json()["activationId"]
    assert client.delete("actions/brief").status_code == 200
    record = wait_for_record(client, started)
    assert record["response"]["status"] == "application error"
    assert record["response"]["result"] == {"error": "Sequence component does not exist."}
    assert len(record["logs"]) == 1


def test_a_large_result_goes_through(client):
    compose(client, "large", "echo", "echo", "length")
    assert call(client, "large", {"a": "x" * 900_000, "b": 1}, result="true").json() == {"length": 2}


def test_a_sequence_of_what_one_may_not_use_is_refused_before_anything_runs(server, client):
    other = server.create_namespace("owner")
    with server.client(other) as theirs:
        theirs.put("packages/shared", json={"publish": True}).raise_for_status()
        body = {"exec": {"kind": "python:3.11", "code": ECHO}}
        theirs.put("actions/shared/tool", json=body).raise_for_status()
        exec_ = {"kind": "sequence", "components": ["/_/echo", "/owner/shared/tool"]}
        client.put("actions/borrows", json={"exec": exec_}).raise_for_status()
        assert call(client, "borrows", {"x": 1}, result="true").json() == {"x": 1}
        theirs.put("packages/shared", params={"overwrite": "true"}, json={"publish": False}).raise_for_status()
    answer = call(client, "borrows")
    assert answer.status_code == 403
    assert "'owner/shared'" in answer.json()["error"]


# --- callers that do not wait ---------------------------------------------------------------------------------


def test_who_does_not_wait_reads_the_record_later(client):
    compose(client, "later", "add", "add")
    answer = client.post("actions/later", json={"n": 1})
    assert answer.status_code == 202
    record = wait_for_record(client, answer.json()["activationId"])
    assert record["response"]["result"] == {"n": 3}
    assert [wait_for_record(client, part)["response"]["success"] for part in record["logs"]] == [True, True]


def test_who_waits_no_longer_gets_the_id_and_the_composition_goes_on(client):
    compose(client, "long", "slow", "add")
    answer = call(client, "long", {"s": 0.4, "n": 1}, timeout="100")
    assert answer.status_code == 202
    record = wait_for_record(client, answer.json()["activationId"])
    assert record["response"]["result"] == {"n": 2}


def test_who_follows_a_composition_sees_what_its_components_print_and_then_its_record(server, client):
    server.deploy("speak", "def main(args):\n    print('n is', args['n'])\n    return {'n': args['n'] + 1}")
    compose(client, "spoken", "speak", "speak")
    body = {"n": 1}
    with client.stream("POST", "actions/spoken", params={"blocking": "true"}, json=body, headers=STREAM) as response:
        accepted, *logs, result = events_of(response)
    assert accepted.kind == "accepted"
    assert [text(event) for event in logs] == ["stdout: n is 1", "stdout: n is 2"]
    assert result.kind == "result"
    assert result.data["response"]["result"] == {"n": 3}
    assert len(result.data["logs"]) == 2


def test_cancelling_ends_the_composition_and_what_runs_of_it(server, client):
    compose(client, "cancelled", "echo", "slow", "add")
    started = client.post("actions/cancelled", json={"s": 30}).json()["activationId"]
    wait_until_busy(server, "slow")
    assert client.delete(f"activations/{started}").status_code == 202
    record = wait_for_record(client, started)
    assert record["response"]["status"] == "whisk internal error"
    assert record["response"]["result"] == {"error": "cancelled"}
    assert len(record["logs"]) == 2
    assert wait_for_record(client, record["logs"][-1])["response"]["result"] == {"error": "cancelled"}
    assert client.delete(f"activations/{started}").status_code == 202, "it has ended, and that is no error"


def test_a_namespaces_bound_counts_a_composition_once(server):
    headers = {"authorization": f"Bearer {server.operator}"}
    body = {"name": "bounded", "concurrentInvocations": 1, "invocationsPerMinute": 100}
    key = httpx.post(f"{server.url}/operator/v1/namespaces", headers=headers, json=body).json()["key"]
    with server.client(key) as client:
        client.put("actions/add", json={"exec": {"kind": "python:3.11", "code": ADD}}).raise_for_status()
        compose(client, "pair", *["add"] * 5)
        assert call(client, "pair", result="true").json() == {"n": 5}


# --- conductors -----------------------------------------------------------------------------------------------


def test_a_conductor_calls_what_it_wants_until_it_is_done(client):
    answer = call(client, "count", {"n": 3})
    assert answer.status_code == 200
    record = answer.json()
    assert record["response"]["result"] == {"n": 0, "turns": 3}
    told = annotations(record)
    assert (told["conductor"], told["kind"], told["topmost"]) == (True, "sequence", True)
    parts = [wait_for_record(client, part) for part in record["logs"]]
    assert [part["name"] for part in parts] == ["count", "add"] * 3 + ["count"]
    assert {part["cause"] for part in parts} == {record["activationId"]}
    assert "conductor" not in annotations(parts[0])
    assert annotations(parts[0])["kind"] == "python:3.11"
    assert record["duration"] == sum(part["duration"] for part in parts)


def test_what_a_conductor_cannot_call_it_is_told(client):
    answer = call(client, "count", {"n": 1, "next": "nothing"}, result="true")
    expected = "Failed to resolve action with name 'guest/nothing' during composition."
    assert answer.json() == {"failed": expected, "state": None}
    answer = call(client, "count", {"n": 1, "next": "/somebody/x"}, result="true")
    assert answer.json()["failed"].startswith("Failed entitlement check for action with name 'somebody/x'")


def test_a_composition_without_end_ends_at_its_limit(server, client):
    server.deploy("forever", "def main(args): return {'action': 'add', 'params': {}}", **CONDUCTOR)
    answer = call(client, "forever")
    assert answer.status_code == 502
    record = answer.json()
    assert record["response"]["result"] == {"error": "Too many actions in the composition."}
    assert len(record["logs"]) == 101 + 50


def test_compositions_hold_sequences_and_sequences_hold_conductors(client):
    compose(client, "minus", "add", "add")
    answer = call(client, "count", {"n": 1, "next": "minus"}, result="true")
    assert answer.json() == {"n": 0, "turns": 2}, "one turn with the sequence, which adds, one with `add`"
    compose(client, "wraps", "count", "ten")
    assert call(client, "wraps", {"n": 2}, result="true").json() == {"n": 10}


def test_metrics_count_compositions_and_their_components(server, client):
    compose(client, "metered", "echo", "echo")
    call(client, "metered")
    page = server.metrics()
    assert 'aliquot_activations_total{action="metered",namespace="guest",start="none",status="success"} 1.0' in page
    assert 'action="echo",namespace="guest",start="warm",status="success"' in page


# --- stops and crashes ----------------------------------------------------------------------------------------


@pytest.fixture
def mortal(tmp_path):
    """A server of the test's own, with a sequence whose components leave a mark."""
    server = LiveServer(tmp_path / "data", "--grace", "20").start()
    server.deploy("add", ADD)
    server.deploy("slow", SLOW)
    with server.client() as client:
        compose(client, "work", "slow", "add")
        compose(client, "again", "slow", "add", annotations=[{"key": "rerun", "value": True}])
    yield server
    if server.process.poll() is None:
        server.kill()
    assert replay_file(tmp_path / "data").differences == []


def test_a_composition_under_way_when_the_server_stops_comes_to_its_end(mortal):
    with mortal.client() as client:
        started = client.post("actions/work", json={"s": 1, "n": 1}).json()["activationId"]
        wait_until_busy(mortal, "slow")
    os.kill(mortal.process.pid, signal.SIGTERM)
    assert mortal.process.wait() == 0
    mortal.start()
    with mortal.client() as client:
        assert wait_for_record(client, started)["response"]["result"] == {"n": 2}
    assert mortal.stop() == 0


def test_what_had_begun_when_the_server_died_is_interrupted_unless_it_may_run_again(mortal):
    with mortal.client() as client:
        first = client.post("actions/work", json={"s": 30, "n": 1}).json()["activationId"]
        wait_until_busy(mortal, "slow")
        second = client.post("actions/again", json={"s": 1, "n": 1}).json()["activationId"]
        time.sleep(0.3)
    mortal.kill()
    mortal.start()
    with mortal.client() as client:
        record = wait_for_record(client, first)
        assert record["response"]["status"] == "whisk internal error"
        assert "interrupted" in record["response"]["result"]["error"]
        assert annotations(record)["topmost"] is True
        assert wait_for_record(client, second)["response"]["result"] == {"n": 2}
    assert mortal.stop() == 0
