"""Expressions of workflows on a real server: those that take long are evaluated beside it, and harm nobody."""

import json

import pytest
from live_workflows import INC, chain, deploy, start, task, wait_for_end


@pytest.fixture(scope="module")
def server(shared_server):
    shared_server.deploy("inc", INC)
    return shared_server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def jsonata(*states):
    return chain(*states, QueryLanguage="JSONata")


def test_long_and_short_expressions_have_the_values_of_jsonata(client):
    add = task("inc", Arguments={"n": "{% $sum($states.input.list) %}"}, Output={"n": "{% $states.result.n * 2 %}"})
    deploy(client, "sums", jsonata(add))
    found = wait_for_end(client, start(client, "sums", {"list": [1, 2, 3]}))
    assert found["output"] == {"n": 14}
    deploy(client, "quick-sums", jsonata(add), durable=False)
    assert client.result("quick-sums", {"list": [4]}) == {"n": 10}


def test_an_evil_expression_is_the_error_of_its_state_and_delays_no_call(client):
    evil = {"Type": "Pass", "Output": "{% $match($states.input.text, /(a+)+$/) %}"}
    deploy(client, "evil", jsonata(evil))
    client.result("inc", {})
    running = [start(client, "evil", {"text": "a" * 40 + "!"}) for _ in range(3)]
    for number in range(20):
        assert client.result("inc", {"n": number}) == {"n": number + 1}
    assert client.get(f"executions/{running[-1]}").json()["status"] == "RUNNING"
    for execution in running:
        found = wait_for_end(client, execution)
        assert (found["status"], found["error"]) == ("FAILED", "States.QueryEvaluationError")
        assert "processor time" in found["cause"]


def test_a_definition_is_checked_by_route_and_at_its_deployment(client):
    wrong = jsonata({"Type": "Pass", "Output": "{% $sum( %}"})
    told = client.post("workflows/check", json={"definition": wrong}).json()
    assert told["valid"] is False
    answer = client.put("actions/wrong", json={"exec": {"kind": "workflow", "code": json.dumps(wrong)}})
    assert answer.status_code == 400
    assert "state 'A', Output" in answer.json()["error"]


def test_a_workflow_and_an_execution_are_drawn(client):
    deploy(client, "drawn", chain({"Type": "Pass"}, task("missing")))
    answer = client.get("workflows/drawn/graph")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.text.startswith("<svg ")
    assert 'class="failed"' not in answer.text
    execution = start(client, "drawn")
    wait_for_end(client, execution)
    drawn = client.get(f"executions/{execution}/graph").text
    assert 'class="succeeded"' in drawn
    assert 'class="failed"' in drawn
    assert client.get("workflows/inc/graph").status_code == 409
    assert client.get(f"executions/{'0' * 32}/graph").status_code == 404
    assert client.get("workflows/nothing/graph").status_code == 404


def test_a_state_with_thousands_of_queries_is_compiled_beside_the_event_loop(client):
    parameters = {f"k{number}.$": "States.MathAdd($.n, 1)" for number in range(2000)}
    deploy(client, "huge", chain({"Type": "Pass", "Parameters": parameters}), durable=False)
    answer = client.post("actions/huge?blocking=true&result=true", json={"n": 1})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {f"k{number}": 2 for number in range(2000)}
