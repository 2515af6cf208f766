"""Workflows on a real server: deployed as actions, started in every way, described, stopped and taken up again."""

import json

import pytest
from command_line import run_here
from event_reader import STREAM, events_of
from live_workflows import INC, chain, deploy, history, read, start, task, wait_for_end, wait_for_state

from aliquot.testing.client import from_pairs
from aliquot.testing.waiting import wait_until

FAIL = "def main(args): return {'error': {'name': 'Broken', 'message': 'it broke'}}"


@pytest.fixture(scope="module")
def server(shared_server):
    shared_server.deploy("inc", INC)
    shared_server.deploy("fail", FAIL)
    return shared_server


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


def test_an_execution_runs_its_tasks_and_can_be_described(client):
    deploy(client, "two", chain(task("inc"), task("inc")))
    execution = start(client, "two", {"n": 5})
    found = wait_for_end(client, execution)
    assert (found["status"], found["output"], found["input"]) == ("SUCCEEDED", {"n": 7}, {"n": 5})
    assert found["workflow"] == "two"
    listed = client.get("executions", params={"workflow": "two"}).json()
    assert [one["executionId"] for one in listed] == [execution]
    assert client.get("executions", params={"workflow": "two", "count": True}).json() == {"executions": 1}
    types = [event["type"] for event in history(client, execution)["events"]]
    assert types[:4] == ["ExecutionStarted", "TaskStateEntered", "TaskScheduled", "TaskStarted"]
    assert types[-1] == "ExecutionSucceeded"


def test_an_execution_is_an_activation_and_its_tasks_are_calls_that_it_caused(client):
    deploy(client, "pair", chain(task("inc"), task("inc")))
    record = client.call("pair", {"n": 1})
    assert record["response"]["result"] == {"n": 3}
    assert from_pairs(record["annotations"])["kind"] == "workflow"
    first, _ = record["logs"]
    found = wait_until(lambda: client.get(f"activations/{first}"), lambda one: one.is_success, what="the record").json()
    notes = from_pairs(found["annotations"])
    assert (found["cause"], notes["execution"], notes["state"], notes["attempt"]) == (
        record["activationId"], record["activationId"], "A", 0,
    )  # fmt: skip


def test_an_express_execution_leaves_a_record_and_nothing_else(client):
    deploy(client, "quick", chain(task("inc"), task("inc")), durable=False)
    record = client.call("quick", {"n": 1})
    assert record["response"]["result"] == {"n": 3}
    assert client.get(f"executions/{record['activationId']}").status_code == 404
    accepted = client.post("actions/quick", json={"n": 2}).json()["activationId"]
    found = wait_until(lambda: client.get(f"activations/{accepted}"), lambda one: one.is_success, what="its end")
    assert found.json()["response"]["result"] == {"n": 4}


def test_a_failure_tells_the_name_of_its_error_and_a_redrive_takes_it_up(client, server):
    deploy(client, "broken", chain(task("inc"), task("fail", ResultPath="$.x")))
    execution = start(client, "broken")
    found = wait_for_end(client, execution)
    assert (found["status"], found["error"], found["cause"]) == ("FAILED", "Broken", "it broke")
    record = client.get(f"activations/{execution}").json()
    assert record["response"]["result"]["error"] == {"name": "Broken", "cause": "it broke"}
    server.deploy("fail", INC)
    try:
        assert client.post(f"executions/{execution}/redrive").status_code == 200
        found = wait_for_end(client, execution)
        assert (found["status"], found["output"]) == ("SUCCEEDED", {"n": 1, "x": {"n": 2}})
        assert found["redrives"] == 1
        assert client.get(f"activations/{execution}").json()["response"]["success"]
        assert client.post(f"executions/{execution}/redrive").status_code == 409
    finally:
        server.deploy("fail", FAIL)


def test_a_wait_can_be_stopped_with_an_error_and_a_cause(client):
    deploy(client, "sleeper", chain({"Type": "Wait", "Seconds": 3600}, task("inc")))
    execution = start(client, "sleeper")
    assert read(client, execution)["states"][0]["waits"] == "a time"
    answer = client.post(f"executions/{execution}/stop", json={"error": "Enough", "cause": "by hand"})
    assert answer.status_code == 200
    found = read(client, execution)
    assert (found["status"], found["error"], found["cause"]) == ("ABORTED", "Enough", "by hand")
    assert client.post(f"executions/{execution}/stop").status_code == 409


def test_a_name_starts_one_execution(client):
    deploy(client, "named", chain({"Type": "Wait", "Seconds": 3600}))
    first = start(client, "named", {"a": 1}, name="once")
    again = client.post("workflows/named/executions", json={"input": {"a": 1}, "name": "once"})
    assert (again.status_code, again.json()["executionId"]) == (200, first)
    other = client.post("workflows/named/executions", json={"input": {"a": 2}, "name": "once"})
    assert other.status_code == 409
    client.post(f"executions/{first}/stop")
    assert client.post("workflows/named/executions", json={"input": {"a": 1}, "name": "once"}).status_code == 409


def test_a_callback_is_answered_once(client):
    ask = task("inc.waitForTaskToken", Parameters={"token.$": "$$.Task.Token"}, HeartbeatSeconds=600)
    deploy(client, "ask", chain(ask))
    execution = start(client, "ask")
    wait_for_state(client, execution, "A", "an answer")
    entered = next(event for event in history(client, execution)["events"] if event["type"] == "TaskScheduled")
    token = json.loads(entered["taskScheduledEventDetails"]["parameters"])["token"]
    assert client.post("tasks/heartbeat", json={"token": token}).status_code == 200
    assert client.post("tasks/success", json={"token": token + "0"}).status_code == 404
    assert client.post("tasks/success", json={"token": token, "output": [1]}).status_code == 200
    assert wait_for_end(client, execution)["output"] == [1]
    assert client.post("tasks/success", json={"token": token, "output": [1]}).status_code == 404


def test_a_workflow_is_a_component_of_a_sequence_and_a_task_of_a_workflow(client):
    deploy(client, "inner", chain(task("inc")))
    deploy(client, "outer", chain(task("inner"), task("inner")))
    assert client.result("outer", {"n": 1}) == {"n": 3}
    components = {"kind": "sequence", "components": ["/_/inc", "/_/inner"]}
    assert client.put("actions/both", json={"exec": components}, params={"overwrite": "true"}).status_code == 200
    assert client.result("both", {"n": 1}) == {"n": 3}


def test_the_device_time_of_an_execution_has_that_of_its_tasks_and_of_executions_inside_it(client, server, tmp_path):
    deploy(client, "inside", chain(task("inc")))
    deploy(client, "quick inside", chain(task("inc")), durable=False)
    deploy(client, "timed", chain(task("inc"), task("inside"), task("quick inside"), {"Type": "Wait", "Seconds": 3600}))
    execution = start(client, "timed")
    waiting = wait_for_state(client, execution, "D", "a time")
    [inside] = client.get("executions", params={"workflow": "inside"}).json()
    events = (
        wait_until(  # the description may be ahead of the disk
            lambda: history(client, execution)["events"],
            lambda found: found[-1]["type"] == "WaitStateEntered",
            what="the history up to the wait",
        )
        + history(client, inside["executionId"])["events"]
    )
    ends = [event["taskSucceededEventDetails"] for event in events if event["type"] == "TaskSucceeded"]
    ran = [end["ranMs"] for end in ends if "ranMs" in end]
    assert len(ran) == 2
    assert waiting["deviceTime"] > sum(ran)  # the time of the express execution is in it as well
    assert waiting["devices"] == {"cpu": waiting["deviceTime"]}
    client.post(f"executions/{execution}/stop")
    ended = read(client, execution)
    assert (ended["status"], ended["deviceTime"]) == ("ABORTED", waiting["deviceTime"])
    environment = {"HOME": str(tmp_path), "ALIQUOT_URL": server.url, "ALIQUOT_KEY": server.key}
    told = run_here("workflow", "show", execution, cwd=tmp_path, environment=environment)
    assert "device time: " in told.out
    assert "(cpu " in told.out


def test_a_wrong_definition_is_refused_with_all_its_mistakes(client):
    wrong = {"StartAt": "A", "States": {"A": {"Type": "Task", "Resource": "inc", "Next": "B"}, "C": {"Type": "Odd"}}}
    answer = client.put("actions/wrong", json={"exec": {"kind": "workflow", "code": json.dumps(wrong)}})
    assert answer.status_code == 400
    assert "'B'" in answer.text
    assert "Odd" in answer.text
    checked = client.post("workflows/check", json={"definition": wrong}).json()
    assert not checked["valid"]
    assert len(checked["complaints"]) >= 2


def test_rules_packages_and_web_actions_start_workflows(client, server):
    deploy(client, "step", chain(task("inc")))
    assert client.put("triggers/tick", json={}).status_code == 200
    rule = {"trigger": "/_/tick", "action": "/_/step"}
    assert client.put("rules/on-tick", json=rule).status_code == 200
    fired = client.post("triggers/tick", json={"n": 4}).json()["activationId"]
    found = wait_until(
        lambda: client.get("executions", params={"workflow": "step"}).json(),
        lambda listed: listed and listed[0]["status"] == "SUCCEEDED",
        what="the execution of the rule",
    )
    execution = found[0]["executionId"]
    assert client.get(f"activations/{execution}").json()["cause"] == fired
    assert read(client, execution)["output"] == {"n": 5}
    client.put("packages/box", json={})
    web = [{"key": "web-export", "value": True}]
    body = {"exec": {"kind": "workflow", "code": json.dumps(chain(task("inc")))}, "annotations": web}
    assert client.put("actions/box/page", json=body).status_code == 200
    assert client.result("box/page", {"n": 1}) == {"n": 2}
    answer = client.post(f"{server.url}/api/v1/web/guest/box/page.json", json={"n": 5})
    assert answer.json() == {"n": 6}
    packaged = client.post("workflows/box/page/executions", json={"input": {"n": 8}}).json()["executionId"]
    assert wait_for_end(client, packaged)["output"] == {"n": 9}


def test_a_deleted_namespace_stops_its_executions(server):
    key = server.create_namespace("leaving")
    with server.client(key) as client:
        deploy(client, "sleeper", chain({"Type": "Wait", "Seconds": 3600}))
        execution = start(client, "sleeper")
    server.operate("DELETE", "namespaces/leaving")
    with server.client(server.create_namespace("leaving")) as client:
        assert client.get(f"executions/{execution}").status_code == 404
        assert client.get("executions").json() == []


def test_exceptions_have_the_name_of_their_class_and_are_caught_by_it(client):
    client.deploy("picky", "def main(args): raise KeyError(args['n'])")
    caught = {"ErrorEquals": ["KeyError"], "Next": "B", "ResultPath": "$.error"}
    deploy(client, "catching", chain(task("picky", Catch=[caught]), {"Type": "Pass"}))
    found = wait_for_end(client, start(client, "catching", {"n": 3}))
    assert found["output"]["error"] == {"Error": "KeyError", "Cause": "3"}
    assert client.call("picky", {"n": 1})["response"]["result"] == {"error": "1"}  # a plain call has the text alone


def test_a_history_is_followed_by_events_as_it_grows(client):
    deploy(client, "watched", chain({"Type": "Wait", "Seconds": 1}, task("talkative")))
    client.deploy("talkative", "def main(args):\n    print('here')\n    return {'n': 1}")
    execution = start(client, "watched")
    with client.stream("GET", f"executions/{execution}/history", headers=STREAM) as response:
        found = list(events_of(response))
    kinds = [event.kind for event in found]
    assert kinds[-1] == "end"
    assert found[-1].data == {"status": "SUCCEEDED"}
    assert any("here" in event.data for event in found if event.kind == "log")
    events = [event.data for event in found if event.kind == "history"]
    assert events == history(client, execution)["events"]
    ended = next(event for event in events if event["type"] == "TaskSucceeded")["taskSucceededEventDetails"]
    assert ended["device"] == "cpu"
    assert ended["ranMs"] > 0
    assert ended["waitedMs"] >= 0
    with client.stream("GET", f"executions/{execution}/history?after=3", headers=STREAM) as response:
        again = [event.data for event in events_of(response) if event.kind == "history"]
    assert again == events[3:]
    with client.stream("GET", f"executions/{execution}/history", headers={**STREAM, "Last-Event-ID": "5"}) as response:
        assert next(event.id for event in events_of(response)) == "6"
    last = client.get(f"executions/{execution}/history", headers={**STREAM, "Last-Event-ID": "end"})
    assert last.status_code == 204
    assert client.get(f"executions/{'0' * 32}/history", headers=STREAM).status_code == 404
