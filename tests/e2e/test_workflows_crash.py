"""`kill -9` under workflows: every execution ends as it would have without the kills, and what was stored runs once."""

import json
import time
from random import Random

import pytest
from live_workflows import chain, deploy, read, start, task, wait_for_end, wait_for_state

from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.client import from_pairs, to_pairs
from aliquot.testing.server import LiveServer

ADD = """
import time

def main(args):
    time.sleep(args.get("s", 0.02))
    return {"n": args["n"] + 1, "s": args.get("s", 0.02)}
"""
# Fails at the first attempt of each task: the key is the same for all attempts, and the activation is not.
UNSTEADY = """
import json, os, pathlib

def main(args):
    task = json.loads(os.environ["ALIQUOT_TASK"])
    assert task["activation"] == os.environ["__OW_ACTIVATION_ID"]
    if args["attempt"] == 0:
        raise OSError("not yet")
    return {"n": args["n"] + 1}
"""
SLOW_ONCE = "import time\ndef main(args):\n    time.sleep(2)\n    return {'n': args['n'] + 1}"

RETRIED = task(
    "unsteady",
    Parameters={"n.$": "$.n", "attempt.$": "$$.State.RetryCount"},
    Retry=[{"ErrorEquals": ["OSError"], "IntervalSeconds": 1, "MaxAttempts": 3}],
)
BRANCH = {"StartAt": "X", "States": {"X": task("add", Next="Y"), "Y": task("add", End=True)}}
ITEM = {"StartAt": "Z", "States": {"Z": task("add", End=True)}}
DEFINITIONS = {
    "row": chain(*[task("add")] * 4),
    "branches": chain({"Type": "Parallel", "Branches": [BRANCH, {**BRANCH, "States": {
        "X2": task("add", Next="Y2"), "Y2": task("add", End=True)}, "StartAt": "X2"}]}),
    "items": chain({"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": ITEM, "MaxConcurrency": 2}),
    "patient": chain(task("add"), {"Type": "Wait", "Seconds": 1}, task("add")),
    "retried": chain(RETRIED, task("add")),
    "chained": chain(*[task("member")] * 3, task("add")),
    "parent": chain(task("row"), task("patient")),
}  # fmt: skip
INPUTS = {"items": {"items": [{"n": number} for number in range(4)]}}


@pytest.fixture
def server(tmp_path):
    with LiveServer(tmp_path / "data") as server:
        with server.client() as client:
            client.deploy("add", ADD)
            client.deploy("member", ADD, annotations=to_pairs({"group": "adders"}))
            client.deploy("unsteady", UNSTEADY)
            for name, definition in DEFINITIONS.items():
                deploy(client, name, definition)
        yield server
    assert not replay_file(server.data).differences


def kill_under(server, count, kills):
    """Start executions of all kinds, kill the server again and again, and return each with its workflow and output."""
    random = Random(count)
    with server.client() as client:
        undisturbed = {name: wait_for_end(client, start(client, name, INPUTS.get(name, {"n": 0})))["output"]
                       for name in DEFINITIONS}  # fmt: skip
    started = []
    batches = [count // kills + (number < count % kills) for number in range(kills)]
    for batch in batches:
        with server.client() as client:
            for _ in range(batch):
                name = random.choice(list(DEFINITIONS))
                started.append((name, start(client, name, INPUTS.get(name, {"n": 0}))))
        time.sleep(random.uniform(0, 0.5))
        server.kill()
        server.start()
    with server.client() as client:
        ends = [(name, wait_for_end(client, execution)) for name, execution in started]
    wrong = [
        (name, end) for name, end in ends if (end["status"], end.get("output")) != ("SUCCEEDED", undisturbed[name])
    ]
    assert wrong == []
    return started


def test_executions_survive_kills_with_the_output_of_an_undisturbed_run(server):
    started = kill_under(server, count=100, kills=3)
    with server.client() as client:
        for _, execution in started[:4]:
            record = client.get(f"activations/{execution}").json()
            assert len(record["logs"]) == len(set(record["logs"]))


@pytest.mark.long
def test_a_thousand_executions_survive_kills(server):
    kill_under(server, count=1000, kills=40)


def test_a_sleeping_execution_and_one_that_waits_for_an_answer_survive_without_being_read(server):
    ask = task("add.waitForTaskToken", Parameters={"n": 1, "token.$": "$$.Task.Token"})
    with server.client() as client:
        deploy(client, "ask", chain(ask))
        deploy(client, "sleep", chain({"Type": "Wait", "Seconds": 4}, task("add")))
        asked, sleeping = start(client, "ask"), start(client, "sleep", {"n": 1})
        wait_for_state(client, asked, "A", "an answer")
        events = client.get(f"executions/{asked}/history").json()["events"]
    server.kill()
    server.start()
    scheduled = next(event for event in events if event["type"] == "TaskScheduled")
    token = json.loads(scheduled["taskScheduledEventDetails"]["parameters"])["token"]
    with server.client() as client:
        assert read(client, asked)["states"][0]["waits"] == "an answer to its token"
        assert client.post("tasks/success", json={"token": token, "output": "yes"}).status_code == 200
        assert wait_for_end(client, asked)["output"] == "yes"
        assert wait_for_end(client, sleeping)["output"]["n"] == 2


def test_a_task_that_must_not_run_twice_ends_as_interrupted(server):
    with server.client() as client:
        once = [{"key": "rerun", "value": False}]
        client.deploy("once", SLOW_ONCE, annotations=once)
        client.deploy("again", SLOW_ONCE)
        deploy(client, "careful", chain(task("once")))
        deploy(client, "careless", chain(task("again")))
        careful, careless = start(client, "careful", {"n": 1}), start(client, "careless", {"n": 1})
        for execution in (careful, careless):
            wait_for_state(client, execution, "A", "the end of its task")
        time.sleep(0.5)
    server.kill()
    server.start()
    with server.client() as client:
        found = wait_for_end(client, careful)
        assert (found["status"], found["error"]) == ("FAILED", "Function.Interrupted")
        assert wait_for_end(client, careless)["output"] == {"n": 2}


def test_a_stop_in_order_leaves_executions_to_the_next_server(server):
    with server.client() as client:
        executions = [start(client, "patient", {"n": 0}) for _ in range(3)]
    assert server.stop() == 0
    server.start()
    with server.client() as client:
        for execution in executions:
            assert wait_for_end(client, execution)["output"]["n"] == 2
        record = client.get(f"activations/{executions[0]}").json()
        assert from_pairs(record["annotations"])["status"] == "SUCCEEDED"
