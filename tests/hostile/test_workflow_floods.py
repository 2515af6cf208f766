"""Floods of executions and evil definitions: the neighbour's workflows go on."""

import pytest
from live_workflows import INC, chain, deploy, read, start, task, wait_for_end

SLEEP = "import time\ndef main(args):\n    time.sleep(args.get('s', 0))\n    return args"
NEVER = {"Type": "Choice", "Choices": [{"Variable": "$.never", "IsPresent": True, "Next": "C"}], "Default": "A"}
LOOP = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}, "B": NEVER, "C": {"Type": "Succeed"}}}
BUSY = {"Type": "Pass", "Output": "{% {'items': [x for x in range(150)]} %}", "Next": "B"}
BUSY_NEVER = {"Type": "Choice", "Choices": [{"Condition": "{% False %}", "Next": "C"}], "Default": "A"}
BUSY_LOOP = {**LOOP, "QueryLanguage": "Python", "States": {"A": BUSY, "B": BUSY_NEVER, "C": {"Type": "Succeed"}}}


@pytest.fixture(scope="module")
def server_options():
    return ("--devices", "host:1", "--limit", "executions_per_namespace=60", "--limit", "workflow_tasks=40")


@pytest.fixture(scope="module", autouse=True)
def neighbours_workflow(tenants):
    tenants.neighbour.deploy("inc", INC)
    deploy(tenants.neighbour, "pause", chain(task("inc"), {"Type": "Wait", "Seconds": 1}, task("inc")))
    deploy(tenants.neighbour, "quick", chain(task("inc"), task("inc")), durable=False)


def check_neighbours_workflows(tenants):
    """Run workflows of the neighbour's to their end, a durable one with a timer and an express one."""
    tenants.check_neighbour()
    execution = start(tenants.neighbour, "pause", {"n": 0})
    assert tenants.neighbour.result("quick", {"n": 0}) == {"n": 2}
    assert wait_for_end(tenants.neighbour, execution)["output"] == {"n": 2}


def stop_all(client):
    for one in client.get("executions", params={"status": "RUNNING", "limit": 200}).json():
        client.post(f"executions/{one['executionId']}/stop")


@pytest.mark.budget("executions")
def test_open_executions_of_one_tenant_leave_those_of_others(tenants):
    deploy(tenants.attacker, "sleeper", chain({"Type": "Wait", "Seconds": 3600}))
    answers = [tenants.attacker.post("workflows/sleeper/executions", json={}).status_code for _ in range(70)]
    assert answers == [201] * 60 + [429] * 10
    refused = tenants.attacker.post("actions/sleeper?blocking=true", json={})
    assert refused.status_code == 429
    assert "executions" in refused.text
    check_neighbours_workflows(tenants)
    stop_all(tenants.attacker)
    assert tenants.attacker.post("workflows/sleeper/executions", json={}).status_code == 201
    stop_all(tenants.attacker)


@pytest.mark.budget("tasks of workflows")
def test_a_map_of_a_tenant_takes_its_part_of_the_tasks_and_goes_on(tenants):
    tenants.attacker.deploy("sleep", SLEEP)
    item = {"StartAt": "Z", "States": {"Z": task("sleep", Parameters={"s": 0.05}, End=True)}}
    deploy(tenants.attacker, "wide", chain({"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": item}))
    execution = start(tenants.attacker, "wide", {"items": list(range(60))})
    check_neighbours_workflows(tenants)
    assert len(wait_for_end(tenants.attacker, execution)["output"]) == 60


@pytest.mark.budget("steps of workflows")
def test_endless_loops_of_a_tenant_take_turns_with_the_timers_of_others(tenants):
    deploy(tenants.attacker, "loop", LOOP)
    deploy(tenants.attacker, "busy", BUSY_LOOP, durable=False)
    looping = [start(tenants.attacker, "loop", {"n": number}) for number in range(10)]
    busy = [tenants.attacker.post("actions/busy", json={}).json()["activationId"] for _ in range(10)]
    check_neighbours_workflows(tenants)
    assert read(tenants.attacker, looping[0])["status"] in {"RUNNING", "FAILED"}
    for activation in (*looping, *busy):
        assert tenants.attacker.delete(f"activations/{activation}").status_code == 202
    for execution in looping:
        found = wait_for_end(tenants.attacker, execution)
        assert (found["status"], found.get("error")) in {("ABORTED", None), ("FAILED", "States.Runtime")}
