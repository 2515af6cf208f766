"""Workflows in Python on a real platform: the graph gives what plain Python gives, and can be looked at and stopped."""

import asyncio
import json
import sys

import pytest
from command_line import run_here
from places import SUPPORT

import aliquot
from aliquot.sdk import errors
from aliquot.testing.waiting import wait_until


@pytest.fixture(scope="module")
def server(shared_server):
    return shared_server


@pytest.fixture
def orders(server, monkeypatch):
    monkeypatch.setenv("ALIQUOT_URL", server.url)
    monkeypatch.setenv("ALIQUOT_KEY", server.key)
    monkeypatch.syspath_prepend(str(SUPPORT))
    sys.modules.pop("orders", None)
    import orders

    yield orders
    sys.modules.pop("orders", None)


@pytest.fixture
def aliquot_here(server, tmp_path):
    environment = {"HOME": str(tmp_path), "COLUMNS": "80", "ALIQUOT_URL": server.url, "ALIQUOT_KEY": server.key}
    return lambda *arguments: run_here(*arguments, cwd=tmp_path, environment=environment)


@pytest.fixture
def command(aliquot_here):
    return lambda *arguments: aliquot_here("workflow", *arguments)


def test_the_graph_gives_what_plain_python_gives(orders):
    assert orders.order.remote(["sun", "star"]) == orders.order(["sun", "star"]) == 7
    assert orders.order.remote(["sun"], gift=True) == orders.order(["sun"], gift=True) == 21
    assert orders.wrapped.remote() == orders.wrapped() == {"value": 1}
    assert orders.outer.remote(["sun", "a"]) == orders.outer(["sun", "a"]) == [3, 1]
    assert asyncio.run(orders.order.remote.aio(["x"])) == 1


def test_batched_functions_and_generators_are_tasks_as_in_plain_python(orders, command, tmp_path):
    expected = [[3, 2, 1], 6, 6, [6, 4, 2]]
    assert orders.launch(3) == expected
    assert orders.launch.remote(3) == expected
    case = {"name": "in process", "input": {"start": 3}, "output": expected}
    cases = {"workflow": f"{SUPPORT / 'orders.py'}:launch", "cases": [case]}
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    told = command("test", "cases.json")
    assert (told.code, told.out) == (0, "passed in process\n"), told.err


def test_errors_are_raised_with_their_own_class_and_can_be_caught_in_the_graph(orders):
    with pytest.raises(orders.SoldOutError, match="there is one moon") as raised:
        orders.order.remote(["moon"])
    assert "aliquot workflow history" in raised.value.__notes__[0]
    assert orders.order.remote(["a long name indeed"]) == {"refused": "18 is too much"}
    with pytest.raises(TypeError, match="missing a required argument"):
        orders.order.remote()
    with pytest.raises(errors.UsageError, match="cannot be sent"):
        orders.order.remote([lambda: 1])


def test_an_express_workflow_gives_its_result_too(orders):
    assert orders.express.remote(3) == 7  # its record cannot tell {"value": 7} from 7
    assert orders.express.start(1).result(timeout=30) == 3


def test_a_function_answers_its_own_token(orders):
    assert orders.approval.remote("yes") == {"said": "YES", "key": len(orders.places.remote()[0]["key"])}


def test_each_entry_into_a_state_has_its_own_key(orders):
    first, second = orders.places.remote()
    assert first["execution"] == second["execution"]
    assert first["key"] != second["key"]
    assert first["token"] == ""
    assert aliquot.task().execution == ""  # outside of workflows


def test_an_execution_is_started_looked_at_and_stopped(orders):
    execution = orders.slow.start()
    described = wait_until(execution.describe, lambda found: bool(found["states"]), what="the wait")
    assert described["states"][0]["state"] == "aliquot.sleep('1h')"
    assert execution.status() == "RUNNING"
    with pytest.raises(TimeoutError, match="has not ended within"):
        orders.slow.execution(execution.id).result(timeout=0.1)
    execution.stop("Enough", "it is late")
    with pytest.raises(errors.ExecutionError, match="Enough: it is late"):
        execution.result(timeout=30)
    assert [event["type"] for event in execution.follow()][-1] == "ExecutionAborted"
    execution.redrive()
    assert wait_until(execution.status, lambda status: status == "RUNNING", what="the redrive")
    asyncio.run(execution.stop.aio())


def test_a_name_starts_an_execution_once(orders):
    first = orders.slow.start_as("once")
    assert orders.slow.start_as("once").id == first.id
    first.stop()
    with pytest.raises(errors.RefusedError, match="once"):
        orders.slow.start_as("once")


def test_the_command_line_deploys_runs_and_shows(command, tmp_path):
    deployed = command("deploy", SUPPORT / "orders.py")
    assert "try: aliquot workflow run orders." in deployed.out
    ran = command("run", "orders.order", "-p", "items", '["sun"]')
    assert (ran.code, ran.out) == (0, "3\n")
    assert "TaskStateEntered price" in ran.err
    failed = command("run", "orders.order", "-p", "items", '["moon"]', "--quiet")
    assert failed.code == 1
    assert "SoldOutError: there is one moon; its steps: aliquot workflow history" in failed.err.replace("\n", " ")
    started = command("start", "orders.slow", "--name", "shown").out.strip()
    shown = wait_until(lambda: command("show", started), lambda told: "in aliquot.sleep" in told.out, what="the wait")
    assert "status: RUNNING" in shown.out
    assert command("stop", started, "--error", "Enough").out == f"{started}\n"
    assert command("follow", started).code == 1
    assert "ExecutionAborted" in command("history", started).out
    assert "error: Enough" in command("show", started).out
    assert started in command("list", "orders.slow", "--status", "aborted", "--json").out
    assert "ABORTED" in command("list", "orders.slow").out
    assert command("redrive", started).out == f"{started}\n"
    assert command("stop", started).code == 0
    (tmp_path / "wait.yaml").write_text("StartAt: A\nStates: {A: {Type: Pass, End: true}}\n")
    assert "try: aliquot workflow run wait" in command("deploy", "wait.yaml", "--express").out
    assert "--name: 'a/b' is not a name" in command("start", "orders.order", "--name", "a/b").err
    assert "there is no function orders.ordre; did you mean orders.order?" in command("run", "orders.ordre").err


def test_an_execution_is_drawn_with_the_states_that_it_has_entered(command, orders, tmp_path):
    caught = orders.order.start(["a long name indeed"])
    assert caught.result(timeout=60) == {"refused": "18 is too much"}
    drawn = command("graph", caught.id)
    assert "price [Task orders.price]" in drawn.out
    assert "succeeded: total" in drawn.out
    assert "caught: fragile" in drawn.out
    failed = orders.order.start(["moon"])
    with pytest.raises(orders.SoldOutError):
        failed.result(timeout=60)
    assert "failed: price" in command("graph", failed.id).out
    waiting = orders.slow.start()
    wait_until(waiting.describe, lambda found: bool(found["states"]), what="the wait")
    command("graph", waiting.id, "--svg", "slow.svg")
    assert "current" in (tmp_path / "slow.svg").read_text()
    assert waiting.graph().startswith("<svg")
    command("graph", "orders.order", "--svg", "order.svg")
    assert "fragile" in (tmp_path / "order.svg").read_text()
    waiting.stop()
    assert "aborted: aliquot.sleep('1h')" in command("graph", waiting.id).out
    assert "(start) → aliquot.sleep('1h')" in command("graph", "orders.slow").out
    assert "orders.price is no workflow" in command("graph", "orders.price").err
    assert "cannot be read" in command("graph", "gone.json").err


def test_an_execution_is_drawn_as_it_began_after_its_workflow_was_changed_and_deleted(command, server, tmp_path):
    for wait in ("Before", "After"):
        states = {wait: {"Type": "Wait", "Seconds": 3600, "End": True}}
        (tmp_path / "patience.json").write_text(json.dumps({"StartAt": wait, "States": states}))
        command("deploy", "patience.json")
        if wait == "Before":
            execution = command("start", "patience").out.strip()
    assert "After" in command("graph", "patience").out
    assert "current: Before" in command("graph", execution).out
    with server.client() as client:
        assert client.delete("actions/patience").status_code == 200
    assert "current: Before" in command("graph", execution).out
    command("graph", execution, "--svg", "patience.svg")
    assert "Before" in (tmp_path / "patience.svg").read_text()
    assert "there is no function patience" in command("start", "patience").err
    assert "in Before: waits for a time" in command("show", execution).out
    assert command("stop", execution).code == 0


def test_a_token_is_answered_by_the_command_line_and_wrong_ones_are_refused(command, orders):
    assert "error" in command("answer", "forged").err
    assert orders.approval.start("x").result(timeout=30)["said"] == "X"


def test_a_sequence_becomes_a_workflow(command, aliquot_here, server, tmp_path):
    server.deploy("inc", "def main(args): return {'n': args['n'] + 1}")
    aliquot_here("action", "create", "twice", "--sequence", "inc,inc")
    (tmp_path / "twice.json").write_text(command("from-sequence", "twice").out)
    assert command("deploy", "twice.json", "--name", "flow").code == 0
    assert json.loads(command("run", "flow", "-p", "n", "1", "-q").out) == {"n": 3}
    assert "is no sequence" in command("from-sequence", "inc").err
