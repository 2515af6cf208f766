"""Triggers that are fired on a real server: what their rules set off, what is recorded, and who is told what."""

import json

import httpx
import pytest
from awaiting import wait_for_record

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer

ECHO = "def main(args): return args"


@pytest.fixture(scope="module")
def server(shared_server):
    shared_server.deploy("echo", ECHO)
    return shared_server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def put(client, what, **body):
    answer = client.put(what, params={"overwrite": "true"}, json=body)
    assert answer.status_code == 200, answer.text


def rule(client, name, trigger, action="echo"):
    put(client, f"rules/{name}", trigger=f"/_/{trigger}", action=f"/_/{action}")


def fire(client, trigger, payload=None):
    """The trigger's record and the lines of its logs."""
    answer = client.post(f"triggers/{trigger}", json=payload, headers={"X-Event": "push"})
    assert answer.status_code == 202, answer.text
    activation_id = answer.json()["activationId"]
    assert answer.headers["x-openwhisk-activation-id"] == activation_id
    record = client.get(f"activations/{activation_id}").json()
    return record, [json.loads(line) for line in record["logs"]]


def test_a_trigger_without_an_active_rule_leaves_no_record(client):
    put(client, "triggers/idle")
    answer = client.post("triggers/idle", json={"x": 1})
    assert (answer.status_code, answer.content) == (204, b"")
    rule(client, "sleeps", "idle")
    client.post("rules/sleeps", json={"status": "inactive"}).raise_for_status()
    assert client.post("triggers/idle").status_code == 204
    assert client.get("activations", params={"name": "idle"}).json() == []


def test_what_is_not_there_or_no_object_is_refused(client):
    assert client.post("triggers/nothing").status_code == 404
    put(client, "triggers/strict")
    answer = client.post("triggers/strict", json=[1])
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("The request content was malformed:")


def test_the_event_is_the_payload_above_the_triggers_parameters(client):
    put(client, "triggers/event", parameters=[{"key": "a", "value": 1}, {"key": "b", "value": 1}])
    rule(client, "on-event", "event")
    record, (line,) = fire(client, "event", {"b": 2})
    assert record["response"] == {"status": "success", "success": True, "result": {"b": 2}, "size": 7}
    assert record["name"] == "event"
    assert "end" not in record
    assert "duration" not in record
    ran = wait_for_record(client, line["activationId"])
    assert line == {
        "rule": "guest/on-event", "action": "guest/echo", "statusCode": 0, "success": True,
        "activationId": ran["activationId"],
    }  # fmt: skip
    headers = ran["response"]["result"].pop("__ow_headers")
    assert ran["response"]["result"] == {"a": 1, "b": 2}
    assert headers["content-type"] == "application/json"
    assert headers["x-event"] == "push"
    assert "authorization" not in headers, "the caller's key is for the gateway"
    assert ran["cause"] == record["activationId"]


def test_a_payload_may_bring_headers_of_its_own(client):
    put(client, "triggers/own", parameters=[{"key": "__ow_headers", "value": "the trigger's"}])
    rule(client, "on-own", "own")
    _, (line,) = fire(client, "own", {"__ow_headers": "the payload's"})
    assert wait_for_record(client, line["activationId"])["response"]["result"] == {"__ow_headers": "the payload's"}


def test_an_empty_fire_is_an_empty_object(client):
    put(client, "triggers/empty")
    rule(client, "on-empty", "empty")
    record, (line,) = fire(client, "empty")
    assert record["response"]["result"] == {}
    assert set(wait_for_record(client, line["activationId"])["response"]["result"]) == {"__ow_headers"}
    assert client.get("activations", params={"name": "empty"}).json()[0]["statusCode"] == 0


def test_every_rule_is_told_of_and_one_whose_action_is_gone_or_that_sleeps_does_not_stop_the_others(server, client):
    server.deploy("leaving", ECHO)
    put(client, "triggers/many")
    rule(client, "r1", "many")
    rule(client, "r2", "many", "leaving")
    rule(client, "r3", "many")
    client.delete("actions/leaving").raise_for_status()
    client.post("rules/r3", json={"status": "inactive"}).raise_for_status()
    _, lines = fire(client, "many", {})
    assert [line["rule"] for line in lines] == ["guest/r1", "guest/r2", "guest/r3"]
    assert lines[1] == {
        "rule": "guest/r2", "action": "guest/leaving", "statusCode": 1, "success": False,
        "error": "The requested resource does not exist.",
    }  # fmt: skip
    assert lines[2]["error"] == "Rule 'guest/r3' is inactive, action 'guest/echo' was not activated."
    assert wait_for_record(client, lines[0]["activationId"])["response"]["success"]


def test_rules_set_off_sequences_too(client):
    put(client, "actions/twice", exec={"kind": "sequence", "components": ["/_/echo", "/_/echo"]})
    put(client, "triggers/chain")
    rule(client, "on-chain", "chain", "twice")
    record, (line,) = fire(client, "chain", {"n": 1})
    ran = wait_for_record(client, line["activationId"])
    assert ran["response"]["result"]["n"] == 1
    assert ran["cause"] == record["activationId"]
    assert len(ran["logs"]) == 2


def test_a_rule_of_an_earlier_trigger_of_this_name_is_not_this_ones(client):
    put(client, "triggers/reborn")
    rule(client, "on-reborn", "reborn")
    client.delete("triggers/reborn").raise_for_status()
    put(client, "triggers/reborn")
    assert client.post("triggers/reborn").status_code == 204


def bounded(server, **bounds):
    headers = {"authorization": f"Bearer {server.operator}"}
    body = {"name": f"bounded{len(bounds)}{next(iter(bounds))}", **bounds}
    answer = httpx.post(f"{server.url}/operator/v1/namespaces", headers=headers, json=body)
    return server.client(answer.raise_for_status().json()["key"])


def test_more_fires_in_a_minute_than_the_namespace_may_are_refused(server):
    with bounded(server, firesPerMinute=0) as client:
        assert client.get("limits").json()["firesPerMinute"] == 0
        put(client, "triggers/often")
        answer = client.post("triggers/often")
        assert answer.status_code == 429
        assert answer.json()["error"] == "Too many requests in the last minute (count: 1, allowed: 0)."


def test_what_rules_set_off_counts_against_the_namespaces_invocations(server):
    with bounded(server, invocationsPerMinute=0) as client:
        put(client, "actions/echo", exec={"kind": "python:3.11", "code": ECHO})
        put(client, "triggers/held")
        rule(client, "on-held", "held")
        _, (line,) = fire(client, "held")
        assert line["statusCode"] == 1
        assert line["error"] == "Too many requests in the last minute (count: 1, allowed: 0)."


def test_metrics_count_fires(server, client):
    put(client, "triggers/metered")
    rule(client, "on-metered", "metered")
    fire(client, "metered")
    page = server.metrics()
    assert 'aliquot_fires_total{namespace="guest",trigger="metered"} 1.0' in page


def test_what_was_fired_and_had_not_run_when_the_server_died_runs(tmp_path):
    server = LiveServer(tmp_path / "data").start()
    server.deploy("echo", "import time\ntime.sleep(1)\n" + ECHO)
    with server.client() as client:
        put(client, "actions/twice", exec={"kind": "sequence", "components": ["/_/echo", "/_/echo"]})
        put(client, "triggers/durable")
        rule(client, "one", "durable")
        rule(client, "two", "durable", "twice")
        record, lines = fire(client, "durable", {"n": 1})
    server.kill()
    server.start()
    with server.client() as client:
        assert client.get(f"activations/{record['activationId']}").json() == record
        for line in lines:
            ran = wait_for_record(client, line["activationId"])
            assert ran["response"]["result"]["n"] == 1
            assert ran["cause"] == record["activationId"]
    assert server.stop() == 0
    assert replay_file(tmp_path / "data").differences == []
