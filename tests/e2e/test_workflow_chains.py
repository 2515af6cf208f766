"""Tasks of one group in a row are one dispatch on a real server: their results need not be JSON, and are not copied."""

import pytest
from live_workflows import chain, deploy, history, start, task, wait_for_end

from aliquot.testing.client import from_pairs, to_pairs
from aliquot.testing.waiting import wait_until

MAKE = """
import os
class Picture:
    def __init__(self, n): self.n, self.pid = n, os.getpid()
def main(args):
    return {'picture': Picture(args['n']), 'n': args['n']}
"""
CHANGE = """
def main(args):
    args['picture'].n += args.get('more', 1)
    return {'picture': args['picture'], 'n': args.get('n', 0)}
"""
SHOW = """
import os
def main(args):
    if args.get('fail'): return {'error': {'name': 'Broken', 'message': 'no frame'}}
    picture = args['picture']
    return {'shown': picture.n, 'same': picture.pid == os.getpid()}
"""
RESULT = "{% states.result %}"
PICTURE = "{% made['picture'] %}"


@pytest.fixture(scope="module")
def client(shared_server):
    with shared_server.client() as client:
        for name, code in {"make": MAKE, "change": CHANGE, "show": SHOW}.items():
            client.deploy(name, code, annotations=to_pairs({"group": "pictures"}))
        yield client


@pytest.mark.parametrize("durable", [True, False])
def test_results_inside_a_group_are_the_very_objects(client, durable):
    name = f"gallery-{durable}"
    deploy(client, name, chain(task("make"), task("change"), task("show")), durable=durable)
    record = client.call(name, {"n": 5})
    assert record["response"]["result"] == {"shown": 6, "same": True}
    assert len(record["logs"]) == 3
    notes = []
    for activation in record["logs"]:
        found = wait_until(
            lambda activation=activation: client.get(f"activations/{activation}"),
            lambda one: one.is_success,
            what="the record of a step",
        ).json()
        assert found["cause"] == record["activationId"]
        notes.append(from_pairs(found["annotations"])["state"])
    assert notes == ["A", "B", "C"]


def test_a_chain_in_the_form_of_python_takes_parts_of_results_and_values_from_before(client):
    definition = chain(
        {"Type": "Pass", "Assign": {"n": "{% states.input['n'] %}", "more": 10}},
        task("make", Arguments={"n": "{% n %}"}, Assign={"made": RESULT}),
        task(
            "change", Arguments={"picture": "{% made['picture'] %}", "more": "{% more %}"}, Assign={"changed": RESULT}
        ),
        task("show", Arguments={"picture": "{% changed['picture'] %}"}, Assign={"shown": RESULT}),
        {"Type": "Pass", "Output": "{% [shown, n] %}"},
        QueryLanguage="Python",
    )
    deploy(client, "python-gallery", definition)
    execution = start(client, "python-gallery", {"n": 5})
    found = wait_for_end(client, execution)
    assert found["output"] == [{"shown": 15, "same": True}, 5]
    types = [event["type"] for event in history(client, execution, limit=100)["events"]]
    assert types.count("TaskStateEntered") == types.count("TaskSucceeded") == types.count("TaskStateExited") == 3


def test_a_failure_in_a_chain_is_that_of_its_state_and_a_redrive_runs_it_again(client):
    python = chain(
        task("make", Arguments={"n": 1}, Assign={"made": RESULT}),
        task("show", Arguments={"picture": "{% made['picture'] %}", "fail": True}),
        QueryLanguage="Python",
    )
    deploy(client, "broken-gallery", python)
    execution = start(client, "broken-gallery")
    found = wait_for_end(client, execution)
    assert (found["status"], found["error"], found["cause"]) == ("FAILED", "Broken", "no frame")
    assert client.post(f"executions/{execution}/redrive").status_code == 200
    assert wait_for_end(client, execution)["error"] == "Broken"


def test_a_part_that_a_result_does_not_have_is_the_error_of_the_next_state(client):
    python = chain(
        task("make", Arguments={"n": 1}, Assign={"made": RESULT}),
        task("show", Arguments={"picture": "{% made['nothing'] %}"}),
        QueryLanguage="Python",
    )
    deploy(client, "no-part", python)
    found = wait_for_end(client, start(client, "no-part"))
    assert (found["status"], found["error"]) == ("FAILED", "KeyError")


def test_a_chain_that_is_stopped_ends_in_the_step_that_runs(client):
    slow = "import time\ndef main(args): time.sleep(60)"
    client.deploy("slow", slow, annotations=to_pairs({"group": "pictures"}))
    deploy(client, "slow-gallery", chain(task("make"), task("slow"), task("show")))
    execution = start(client, "slow-gallery", {"n": 1})
    first = wait_until(
        lambda: client.get("activations", params={"name": "make", "limit": 1, "docs": True}).json(),
        lambda found: found and found[0].get("cause") == execution,
        what="the record of the first step",
    )[0]
    assert from_pairs(first["annotations"])["state"] == "A"
    assert client.post(f"executions/{execution}/stop", json={"error": "Enough"}).status_code == 200
    assert wait_for_end(client, execution)["status"] == "ABORTED"
    ended = wait_until(
        lambda: client.get("activations", params={"name": "slow", "limit": 1, "docs": True}).json(),
        what="the end of the step that ran",
    )[0]
    assert ended["response"]["success"] is False
    assert ended["duration"] < 30_000


def test_steps_that_have_ended_keep_their_records_when_a_later_one_ends_the_sandbox(client):
    client.deploy("leave", "import os\ndef main(args): os._exit(1)", annotations=to_pairs({"group": "pictures"}))
    deploy(client, "left-gallery", chain(task("make"), task("change"), task("leave")), durable=False)
    record = client.call("left-gallery", {"n": 5})
    assert record["response"]["result"]["error"]["name"] == "Function.Crashed"
    ends = {}
    for activation in record["logs"]:
        found = wait_until(
            lambda activation=activation: client.get(f"activations/{activation}"),
            lambda one: one.is_success,
            what="the record of a step",
        ).json()
        ends[found["name"]] = found["response"]["status"]
    assert ends == {"make": "success", "change": "success", "leave": "action developer error"}


def test_each_step_of_a_chain_has_the_lines_that_it_printed(client):
    for name in ("first", "second", "third"):
        said = "" if name == "second" else f"    print('{name}')\n"
        client.deploy(
            name, f"def main(args):\n{said}    return {{'n': 1}}", annotations=to_pairs({"group": "speakers"})
        )
    deploy(client, "speech", chain(task("first"), task("second"), task("third")), durable=False)
    record = client.call("speech", {})
    lines = [
        wait_until(
            lambda activation=activation: client.get(f"activations/{activation}/logs"),
            lambda one: one.is_success,
            what="the record of a step",
        ).json()["logs"]
        for activation in record["logs"]
    ]
    assert [[line.rpartition(" ")[2] for line in one] for one in lines] == [["first"], [], ["third"]]


def test_a_group_that_changes_while_an_execution_waits_changes_where_its_tasks_run(client):
    code = (  # functions of a sandbox share its built-in names
        "import builtins, os\n"
        "place = builtins.__dict__.setdefault('place', os.urandom(8).hex())\n"
        "def main(args): return {'places': [*args.get('places', ()), place]}"
    )
    for name in ("near", "far"):
        client.deploy(name, code, annotations=to_pairs({"group": "movers"}))
    deploy(client, "moving", chain({"Type": "Wait", "Seconds": 1}, task("near"), task("far")))
    together = start(client, "moving")
    first, second = wait_for_end(client, together)["output"]["places"]
    assert first == second
    apart = start(client, "moving")
    client.deploy("far", code, annotations=to_pairs({"group": "others"}))
    first, second = wait_for_end(client, apart)["output"]["places"]
    assert first != second
