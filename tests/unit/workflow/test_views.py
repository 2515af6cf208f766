"""Views of executions and definitions: history, description, graph; tokens and times."""

import pytest
from workflow_definitions import BRANCHING, END, NESTED, TASKS, machine
from workflow_shell import FOREVER, SECRET, START, Shell, compiled, error

from aliquot.workflow.describe import describe
from aliquot.workflow.graph import graph_of
from aliquot.workflow.history import replay_history
from aliquot.workflow.interpreter import StopAsked, TaskEnded, TaskPlace, read_token
from aliquot.workflow.times import format_time, parse_time


def types(shell):
    return [event["type"] for event in replay_history(shell.machine, shell.log, SECRET)]


def test_the_history_of_a_task_with_retry_and_catch():
    state = {
        "Type": "Task",
        "Resource": "f",
        "Retry": [{"ErrorEquals": ["X"], "MaxAttempts": 1}],
        "Catch": [{"ErrorEquals": ["X"], "Next": "B"}],
        "End": True,
    }
    shell = Shell(machine(A=state, B=END), {"f": error("X", "c")})
    shell.run({"a": 1})
    attempt = ["TaskScheduled", "TaskStarted", "TaskFailed"]
    assert types(shell) == [
        *("ExecutionStarted", "TaskStateEntered", *attempt, *attempt, "TaskStateExited"),
        *("PassStateEntered", "PassStateExited", "ExecutionSucceeded"),
    ]
    events = replay_history(shell.machine, shell.log, SECRET)
    assert events[1]["stateEnteredEventDetails"] == {"name": "A", "input": '{"a":1}'}
    assert events[4]["taskFailedEventDetails"]["error"] == "X"
    assert events[0]["timestamp"] == format_time(START)
    assert [event["previousEventId"] for event in events] == list(range(len(events)))


def test_the_history_of_callbacks_timeouts_and_stops():
    callback = {"Type": "Task", "Resource": "f.waitForTaskToken", "TimeoutSeconds": 9, "End": True}
    shell = Shell(machine(A=callback), {"f": lambda *_: FOREVER}).start()
    shell.send(TaskEnded(next(iter(shell.running)), 1))
    shell.go_on()
    assert types(shell)[4:] == ["TaskSubmitted", "TaskTimedOut", "ExecutionFailed"]
    stopped = Shell(machine(A=callback), {"f": lambda *_: FOREVER}).start()
    stopped.send(StopAsked("E", "c"))
    assert types(stopped)[-1] == "ExecutionAborted"


def test_branches_of_the_history_name_the_event_before_them_in_their_branch():
    state = {"Type": "Parallel", "Branches": [machine(B=END), machine(C=END)], "End": True}
    shell = Shell(machine(A=state))
    shell.run({})
    events = replay_history(shell.machine, shell.log)
    entered = {event["stateEnteredEventDetails"]["name"]: event for event in events if "Entered" in event["type"]}
    started = next(event["id"] for event in events if event["type"] == "ParallelStateStarted")
    assert entered["B"]["previousEventId"] == entered["C"]["previousEventId"] == started


def test_variables_stand_in_the_history():
    shell = Shell(machine(A={"Type": "Pass", "Assign": {"v": {"a": 1}}, "End": True}))
    shell.run({})
    assert replay_history(shell.machine, shell.log)[2]["stateExitedEventDetails"]["assignedVariables"] == {
        "v": '{"a":1}'
    }


def test_a_description_tells_where_an_execution_stands():
    task = {"Type": "Task", "Resource": "f", "End": True}
    branches = [machine(B=task), machine(C={"Type": "Wait", "Seconds": 9, "End": True})]
    state = {"Type": "Parallel", "Branches": branches, "End": True}
    shell = Shell(machine(A=state), {"f": lambda *_: FOREVER}).start({"q": 1})
    told = describe(shell.execution)
    assert (told["status"], told["input"]) == ("RUNNING", {"q": 1})
    assert [(row["state"], row["waits"]) for row in told["stands"]] == [
        ("A", "its branches or iterations"),
        ("B", "the end of its task"),
        ("C", "a time"),
    ]
    assert told["stands"][1]["task"] in shell.running
    shell.send(StopAsked("E", "c"))
    assert describe(shell.execution)["error"] == "E"


def test_the_graph_has_the_transitions_with_their_conditions():
    graph = graph_of(compiled(BRANCHING))
    labels = {(edge.source, edge.target): edge.label for edge in graph.edges}
    assert labels["Start", "W"] == "rule 1"
    assert labels["Start", "Done"] == "default"
    assert labels["(start)", "Start"] == ""
    assert labels["W4", "(end)"] == ""
    assert {node.kind for node in graph.nodes} == {"Choice", "Wait", "Succeed"}


def test_the_graph_has_inner_machines_and_resources():
    graph = graph_of(compiled(NESTED))
    places = {node.name: node.inside for node in graph.nodes}
    assert places["P2"] == ("P", "branch 2")
    assert places["I2"] == ("M2", "items")
    assert ("P", "F", "catch States.ALL") in [edge[:3] for edge in graph.edges]
    assert graph_of(compiled(TASKS)).resources() == {"first": ("A",)}
    assert graph.resources() == {"f": ("I2",)}


def test_a_token_names_its_task_and_cannot_be_forged():
    place = TaskPlace("run.with.dots", 7, 2)
    token = place.token(SECRET)
    assert read_token(token, SECRET) == place
    assert read_token(token, b"another secret") is None
    assert read_token(token.replace(".7.", ".8."), SECRET) is None
    for wrong in ("", "x", "a.b.c.d", "a.1.2.", token + "0", "é.1.2.é", "a.\u0661.2.x", "a." + "9" * 5000 + ".2.x"):
        assert read_token(wrong, SECRET) is None
    assert TaskPlace("run", 1, 0).key() == TaskPlace("run", 1, 5).key() != TaskPlace("run", 2, 0).key()
    assert len(place.task()) == 32


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T12:00:00Z", 951_825_600),
        ("2026-11-17T15:23:57.120Z", 1_794_929_037.12),
        ("1969-12-31T23:59:59Z", -1),
        ("2024-01-01T01:00:00+01:00", 1_704_067_200),
        ("2023-12-31T18:30:00-05:30", 1_704_067_200),
        ("2024-02-30T00:00:00Z", None),
        ("1900-02-29T00:00:00Z", None),
        ("2024-13-01T00:00:00Z", None),
        ("2024-01-01T24:00:00Z", None),
        ("2024-01-01", None),
        ("2024-01-01T00:00:00", None),
    ],
)
def test_timestamps_are_read_by_hand(text, seconds):
    assert parse_time(text) == seconds


def test_times_are_written_as_they_are_read():
    for seconds in [0, 1_700_000_000.123, 951_782_400, 4_102_444_799.999, -86_400.5, *range(0, 10**10, 123_456_789)]:
        assert parse_time(format_time(seconds)) == pytest.approx(seconds, abs=0.001)
