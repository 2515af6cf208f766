"""Deadlines of workflows and sequences on a real server: promised or refused as one, and what is told about them."""

import json
import time

import pytest
from live_workflows import chain, deploy, read, start, task, wait_for_end

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.client import check, from_pairs, to_pairs
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

STEP = """
import time
def main(args):
    time.sleep(args.get("s", 0.02))
    return {"n": args.get("n", 0) + 1, "sure": args.get("sure", True)}
"""
CASCADE = {
    "StartAt": "Small",
    "States": {
        "Small": task("step", Next="Sure"),
        "Sure": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.sure", "BooleanEquals": True, "Next": "Done"}],
            "Default": "Big",
        },
        "Big": task("step", End=True),
        "Done": {"Type": "Succeed"},
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("live") / "data", "--admission", "reservation") as server:
        with server.client() as client:
            deploy_all(client)
            learn(client)
        yield server
    assert not replay_file(server.data).differences


@pytest.fixture
def client(server):
    with server.client(timeout=60) as client:
        yield client


def deploy_all(client):
    client.deploy("step", STEP)
    deploy(client, "pair", chain(task("step"), task("step")))
    deploy(client, "quick", chain(task("step"), task("step")), durable=False)
    deploy(client, "cascade", CASCADE, durable=False)
    sequence = {"kind": "sequence", "components": ["/_/step", "/_/step", "/_/step"]}
    check(client.put("actions/row", params={"overwrite": "true"}, json={"exec": sequence}))


def learn(client):
    """Call the function until its run times are known."""
    for _ in range(9):
        assert within(client, "step", 5000).status_code == 200


def within(client, name, deadline_ms, args=None, *, blocking="true", **limits):
    headers = {
        "x-aliquot-deadline-ms": str(deadline_ms),
        **{f"x-aliquot-{key}": value for key, value in limits.items()},
    }
    return client.post(f"actions/{name}", params={"blocking": blocking}, json=args or {"n": 1}, headers=headers)


def notes_of(record):
    return from_pairs(record["annotations"])


def record_of(client, activation):
    path = f"activations/{activation}"
    return wait_until(lambda: client.get(path), lambda one: one.status_code == 200, what="the record").json()


@pytest.mark.parametrize("name", ["pair", "quick", "row"])
def test_a_whole_execution_is_promised_and_its_record_tells_it(client, name):
    answer = within(client, name, 20_000)
    assert answer.status_code == 200, answer.text
    notes = notes_of(answer.json())
    assert notes["objective"] == {"deadline": 20_000.0, "promised": True, "met": True}
    costs = [notes_of(record_of(client, one))["cost"] for one in answer.json()["logs"]]
    assert notes["cost"] == pytest.approx(sum(costs), abs=1e-5)
    assert all(costs)


@pytest.mark.parametrize("name", ["pair", "quick", "row"])
@pytest.mark.parametrize("blocking", ["true", "false"])
def test_an_execution_that_cannot_be_in_time_is_refused_with_an_offer_and_no_stage_runs(client, name, blocking):
    before = client.get("activations", params={"count": "true"}).json()
    answer = within(client, name, 25, blocking=blocking)
    assert answer.status_code == 429, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    refused = answer.json()["refused"]
    assert refused["why"] == "never"
    assert refused["needs_ms"] > 40
    assert client.get("activations", params={"count": "true"}).json() == before
    assert within(client, name, refused["offer"]["deadline_ms"] + 500).status_code == 200


def test_a_start_by_the_route_of_executions_takes_the_same_limits(client):
    answer = client.post("workflows/pair/executions", json={"input": {}}, headers={"x-aliquot-deadline-ms": "20"})
    assert answer.status_code == 429, answer.text
    accepted = client.post("workflows/pair/executions", json={"input": {}}, headers={"x-aliquot-deadline-ms": "20000"})
    execution = accepted.json()["executionId"]
    assert wait_for_end(client, execution)["status"] == "SUCCEEDED"
    assert notes_of(record_of(client, execution))["objective"]["met"]


def test_a_cascade_is_planned_with_both_networks_and_gives_back_the_second(client):
    answer = within(client, "cascade", 20_000, {"sure": True})
    assert len(answer.json()["logs"]) == 1
    unsure = within(client, "cascade", 20_000, {"sure": False})
    assert len(unsure.json()["logs"]) == 2
    for record in (answer.json(), unsure.json()):
        assert notes_of(record)["objective"] == {"deadline": 20_000.0, "promised": True, "met": True}
    # What is skipped needs time all the same, until it is known.
    assert within(client, "cascade", 30, {"sure": True}).json()["refused"]["why"] == "never"


def test_a_workflow_that_cannot_be_planned_says_which_state(client):
    waits = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 0, "Next": "A"}, "A": task("step", End=True)}}
    deploy(client, "waits", waits)
    answer = within(client, "waits", 1000)
    assert answer.status_code == 400
    assert "state 'W'" in answer.json()["error"]
    assert client.call("waits", {})["response"]["success"]


def test_a_declared_deadline_holds_where_a_plan_can_be_made_and_warns_elsewhere(client):
    limits = to_pairs({"latency-slo-ms": 20_000})
    client.deploy("declared", json.dumps(chain(task("step"))), kind="workflow", annotations=limits)
    assert notes_of(client.call("declared", {}))["objective"]["promised"]
    waits = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 0, "End": True}}}
    body = {"exec": {"kind": "workflow", "code": json.dumps(waits)}, "annotations": limits}
    answer = client.put("actions/patient", json=body, params={"overwrite": "true"})
    assert any("'W'" in one and "no promised" in one for one in answer.json()["warnings"])
    assert "objective" not in notes_of(client.call("patient", {}))


def test_an_execution_with_late_drop_ends_when_its_promise_is_broken(client):
    answer = within(client, "pair", 1500, {"s": 20}, late="drop")
    assert answer.status_code == 504, answer.text
    found = read(client, answer.json()["activationId"])
    assert (found["status"], found["error"]) == ("ABORTED", "States.Timeout")
    objective = notes_of(answer.json())["objective"]
    assert (objective["promised"], objective["met"], objective["blame"]) == (True, False, "own run")
    dropped = within(client, "row", 1500, {"s": 20}, late="drop")
    assert dropped.status_code == 504, dropped.text
    assert not notes_of(dropped.json())["objective"]["met"]


def test_ends_of_executions_are_counted(server, client):
    within(client, "pair", 20_000)
    within(client, "quick", 5)
    counts = server.operate("GET", "status")["promises"]
    assert counts["kept"] > 0
    assert counts["refused"] > 0
    metrics = server.metrics()
    assert 'aliquot_promises_total{action="pair",cause="",end="kept",namespace="guest"}' in metrics
    assert 'aliquot_promises_total{action="quick",cause="never",end="refused",namespace="guest"}' in metrics


def test_a_restart_breaks_the_promise_and_the_execution_goes_on(tmp_path):
    server = LiveServer(tmp_path / "data", "--admission", "reservation")
    with server, server.client(timeout=60) as client:
        client.deploy("step", STEP, annotations=to_pairs({"rerun": True}))
        deploy(client, "pair", chain(task("step"), task("step")))
        learn(client)
        headers = {"x-aliquot-deadline-ms": "2500"}
        body = {"input": {"s": 1.2}}
        begun = client.post("workflows/pair/executions", json=body, headers=headers)
        execution = begun.json()["executionId"]
        wait_until(
            lambda: read(client, execution), lambda one: any(s["waits"] for s in one["states"]), what="its first task"
        )
        server.kill()
    time.sleep(0.2)
    with server, server.client(server.key) as client:
        assert wait_for_end(client, execution)["status"] == "SUCCEEDED"
        objective = notes_of(record_of(client, execution))["objective"]
        assert objective["promised"]
        if not objective["met"]:
            assert objective["blame"] == "restart"
    assert not replay_file(server.data).differences


def test_a_function_that_is_removed_breaks_the_promise_and_is_told(client):
    client.deploy("gone", STEP)
    deploy(client, "uses", chain(task("step", ResultPath="$.x"), task("gone")))
    for _ in range(9):
        assert within(client, "gone", 5000).status_code == 200
    execution = client.post(
        "workflows/uses/executions", json={"input": {"s": 1}}, headers={"x-aliquot-deadline-ms": "20000"}
    ).json()["executionId"]
    client.delete("actions/gone")
    found = wait_for_end(client, execution)
    assert (found["status"], found["error"]) == ("FAILED", "Function.Missing")
    objective = notes_of(record_of(client, execution))["objective"]
    assert objective["promised"]
    assert within(client, "uses", 20_000).status_code == 400
    assert start(client, "pair")
