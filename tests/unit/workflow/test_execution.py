"""Executions: events in, commands out, in virtual time."""

import pytest
from workflow_definitions import END, machine
from workflow_shell import FOREVER, START, After, Shell, error

from aliquot.workflow.describe import describe
from aliquot.workflow.errors import EventRefusedError
from aliquot.workflow.interpreter import (
    CancelTask,
    Evaluate,
    Finish,
    RedriveAsked,
    RunTask,
    SetTimer,
    Started,
    StopAsked,
    TaskBeat,
    TaskEnded,
    TimerDue,
)


def run(definition, value=None, functions=None):
    return Shell(definition, functions).run(value)


def task(**fields):
    return {"Type": "Task", "Resource": "f", "End": True, **fields}


def double(value, *_):
    return value * 2


def test_states_follow_each_other_without_commands():
    shell = Shell(
        machine(
            A={"Type": "Pass", "Result": {"n": 0}, "Next": "B"},
            B={"Type": "Choice", "Choices": [{"Variable": "$.n", "NumericLessThan": 5, "Next": "C"}], "Default": "D"},
            C={"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)"}, "Next": "B"},
            D={"Type": "Succeed"},
        )
    ).start()
    assert shell.batches == [[Finish("SUCCEEDED", {"n": 5})]]


@pytest.mark.parametrize(
    ("fields", "value", "output"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"Result": 3}, {"a": 1}, 3),
        ({"Result": 3, "ResultPath": "$.b"}, {"a": 1}, {"a": 1, "b": 3}),
        ({"Result": 3, "ResultPath": None}, {"a": 1}, {"a": 1}),
        ({"InputPath": "$.a"}, {"a": 1}, 1),
        ({"InputPath": None}, {"a": 1}, {}),
        ({"OutputPath": None}, {"a": 1}, {}),
        ({"OutputPath": "$.a"}, {"a": 1}, 1),
        ({"Parameters": {"x.$": "$.a", "y": 2}, "ResultPath": "$.p"}, {"a": 1}, {"a": 1, "p": {"x": 1, "y": 2}}),
        ({"InputPath": "$.a", "ResultPath": "$.b", "OutputPath": "$.b"}, {"a": 1}, 1),
        ({"Parameters": {"x.$": "$.l[*].v"}}, {"l": [{"v": 1}, {"v": 2}]}, {"x": [1, 2]}),
        ({"Result": 1.0}, {}, 1.0),
    ],
)
def test_data_flow_through_the_fields_of_a_pass_state(fields, value, output):
    assert run(machine(A={"Type": "Pass", "End": True, **fields}), value) == Finish("SUCCEEDED", output)


def test_a_task_gets_its_arguments_and_its_result_is_placed():
    state = task(
        InputPath="$.in",
        Parameters={"x.$": "$.a"},
        ResultSelector={"r.$": "$.doubled"},
        ResultPath="$.out",
        OutputPath="$.out",
    )
    shell = Shell(machine(A=state), {"f": lambda value, _: {"doubled": value["x"] * 2}}).start({"in": {"a": 4}})
    [command] = shell.batches[0]
    assert (command.resource, command.arguments, command.state, command.attempt) == ("f", {"x": 4}, "A", 0)
    assert shell.go_on().result == Finish("SUCCEEDED", {"r": 8})


def test_a_function_of_lambda_is_called_by_its_name():
    invoke = task(
        Resource="arn:aws:states:::lambda:invoke",
        Parameters={"FunctionName": "arn:aws:lambda:eu-west-1:1:function:g", "Payload.$": "$"},
    )
    result = run(machine(A=invoke), {"a": 1}, {"g": lambda value, _: value})
    assert result.output == {"ExecutedVersion": "$LATEST", "Payload": {"a": 1}, "StatusCode": 200}
    assert run(machine(A=task(Resource="arn:aws:lambda:eu-west-1:1:function:g:2")), 1, {"g": double}).output == 2
    wrong = run(machine(A={**invoke, "Parameters": {"FunctionName": "a$b"}}), {})
    assert wrong.error == "States.Runtime"


def test_a_failed_task_is_retried_with_growing_delays():
    retry = {"ErrorEquals": ["X"], "IntervalSeconds": 3, "BackoffRate": 2, "MaxAttempts": 4, "MaxDelaySeconds": 10}
    shell = Shell(machine(A=task(Retry=[retry])), {"f": error("X", "no")})
    assert shell.run({}) == Finish("FAILED", None, "X", "no")
    delays = [command.at for batch in shell.batches for command in batch if isinstance(command, SetTimer)]
    assert [at - START for at in delays] == [3, 9, 19, 29]
    runs = [command for batch in shell.batches for command in batch if isinstance(command, RunTask)]
    assert [command.attempt for command in runs] == [0, 1, 2, 3, 4]
    assert len({command.key for command in runs}) == 1
    assert len({command.task for command in runs}) == 5


def test_jitter_draws_a_part_of_the_delay_from_a_hash():
    retry = {"ErrorEquals": ["X"], "IntervalSeconds": 100, "MaxAttempts": 3, "JitterStrategy": "FULL"}
    definition = machine(A=task(Retry=[retry]))
    first, second = Shell(definition, {"f": error("X")}), Shell(definition, {"f": error("X")})
    first.run({})
    second.run({})
    assert first.log == second.log
    assert 0 < first.now - START < 700


def test_each_retrier_counts_its_own_attempts():
    names = iter(["X", "Y", "X", "Y", "Y"])
    rules = [{"ErrorEquals": [name], "MaxAttempts": 2} for name in ("X", "Y")]
    shell = Shell(machine(A=task(Retry=rules)), {"f": lambda *_: error(next(names))()})
    assert shell.run({}).error == "Y"
    assert next(names, None) is None


def test_an_exhausted_retry_leads_to_catch():
    state = task(
        Retry=[{"ErrorEquals": ["X"], "MaxAttempts": 1}],
        Catch=[{"ErrorEquals": ["Other"], "Next": "B"}, {"ErrorEquals": ["X"], "ResultPath": "$.e", "Next": "C"}],
    )
    result = run(machine(A=state, B=END, C=END), {"a": 1}, {"f": error("X", "why")})
    assert result.output == {"a": 1, "e": {"Error": "X", "Cause": "why"}}


@pytest.mark.parametrize(
    ("rule", "raised", "caught"),
    [
        ("States.ALL", "X", True),
        ("States.ALL", "States.DataLimitExceeded", True),
        ("States.ALL", "States.Runtime", False),
        ("States.Runtime", "States.Runtime", False),
        ("States.TaskFailed", "X", True),
        ("States.TaskFailed", "States.Timeout", False),
        ("States.Timeout", "States.Timeout", True),
        ("States.HeartbeatTimeout", "States.Timeout", False),
        ("X", "Y", False),
    ],
)
def test_which_errors_a_rule_catches(rule, raised, caught):
    state = task(Catch=[{"ErrorEquals": [rule], "Next": "B"}])
    assert (run(machine(A=state, B=END), {}, {"f": error(raised)}).status == "SUCCEEDED") is caught


def test_a_task_that_takes_too_long_is_cancelled():
    shell = Shell(machine(A=task(TimeoutSeconds=5)), {"f": lambda *_: After(9)}).start({})
    [command, timer] = shell.batches[0]
    assert command.until == timer.at == START + 5
    assert shell.go_on().result.error == "States.Timeout"
    assert CancelTask(command.task) in shell.batches[-1]
    assert shell.send(TaskEnded(command.task, 1)) == []


def test_a_missed_heartbeat_is_a_timeout():
    state = task(HeartbeatSeconds=5, Catch=[{"ErrorEquals": ["States.HeartbeatTimeout"], "Next": "B"}])
    shell = Shell(machine(A=state, B=END), {"f": lambda *_: FOREVER}).start({})
    [command, _] = shell.batches[0]
    shell.go_on(until=START + 4)
    shell.send(TaskBeat(command.task))
    shell.go_on(until=START + 8)
    shell.send(TaskBeat(command.task))
    assert not shell.finished
    assert shell.go_on().result.output["Error"] == "States.Timeout"
    assert shell.now == START + 13


def test_a_callback_ends_a_task_with_its_token():
    state = task(Resource="f.waitForTaskToken", Parameters={"t.$": "$$.Task.Token"})
    shell = Shell(machine(A=state), {"f": lambda *_: FOREVER}).start({})
    [command] = shell.batches[0]
    assert command.arguments == {"t": command.token}
    assert shell.send(TaskEnded(command.task, "what the function returned")) == []
    assert describe(shell.execution)["stands"][0]["waits"] == "an answer to its token"
    shell.send(TaskEnded(command.task, {"approved": True}, answered=True))
    assert shell.result.output == {"approved": True}
    assert shell.send(TaskEnded(command.task, 2, answered=True)) == []


def test_a_callback_may_come_before_the_function_returns_and_a_failed_function_ends_the_task():
    definition = machine(A=task(Resource="f.waitForTaskToken"))
    shell = Shell(definition, {"f": lambda *_: FOREVER}).start({})
    name = shell.batches[0][0].task
    assert shell.send(TaskEnded(name, 1, answered=True)) == [Finish("SUCCEEDED", 1)]
    assert shell.send(TaskEnded(name, 2)) == []
    failing = Shell(definition, {"f": error("X")})
    assert failing.run({}).error == "X"
    plain = Shell(machine(A=task()), {"f": lambda *_: FOREVER}).start({})
    assert plain.send(TaskEnded(plain.batches[0][0].task, 1, answered=True)) == []


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"Seconds": 7}, 7),
        ({"SecondsPath": "$.s"}, 3),
        ({"Timestamp": "2023-11-14T22:13:30Z"}, 10),
        ({"TimestampPath": "$.t"}, 20),
        ({"Seconds": 0}, 0),
        ({"Timestamp": "2001-01-01T00:00:00Z"}, 0),
    ],
)
def test_a_wait_state_waits(fields, seconds):
    shell = Shell(machine(A={"Type": "Wait", "End": True, **fields}))
    assert shell.run({"s": 3, "t": "2023-11-14T23:13:40+01:00"}).status == "SUCCEEDED"
    assert shell.now == START + seconds


def test_fail_states_tell_error_and_cause():
    assert run(machine(A={"Type": "Fail", "Error": "E", "Cause": "c"})) == Finish("FAILED", None, "E", "c")
    paths = {"Type": "Fail", "ErrorPath": "$.e", "CausePath": "States.Format('<{}>', $.c)"}
    assert run(machine(A=paths), {"e": "E", "c": 1}) == Finish("FAILED", None, "E", "<1>")
    assert run(machine(A=paths), {"e": 3, "c": 1}).error == "States.Runtime"


def test_the_whole_execution_has_a_timeout():
    definition = {"TimeoutSeconds": 10, **machine(A=task())}
    shell = Shell(definition, {"f": lambda *_: FOREVER})
    result = shell.run({})
    assert (result.status, result.error, shell.now) == ("TIMED_OUT", "States.Timeout", START + 10)
    assert any(isinstance(command, CancelTask) for command in shell.batches[-1])


def test_stop_ends_everything_and_leaves_no_timer():
    state = task(TimeoutSeconds=50)
    branches = [machine(B=state), machine(C={"Type": "Wait", "Seconds": 90, "End": True})]
    shell = Shell(machine(A={"Type": "Parallel", "Branches": branches, "End": True}), {"f": lambda *_: FOREVER}).start()
    commands = shell.send(StopAsked("Mine", "enough"))
    assert [type(command) for command in commands] == [CancelTask, Finish, SetTimer]
    assert commands[1:] == [Finish("ABORTED", None, "Mine", "enough"), SetTimer(None)]
    with pytest.raises(EventRefusedError):
        shell.execution.step([StopAsked()], shell.now)


def test_events_that_do_not_fit_are_refused_and_late_ones_ignored():
    shell = Shell(machine(A=task()), {"f": double}).start(2)
    with pytest.raises(EventRefusedError):
        shell.execution.step([Started("again")], shell.now)
    with pytest.raises(EventRefusedError):
        shell.execution.step([RedriveAsked()], shell.now)
    assert shell.execution.step([TaskEnded("nobody"), TaskBeat("nobody"), TimerDue()], shell.now) == []
    assert shell.go_on().result.output == 4
    with pytest.raises(EventRefusedError):
        shell.execution.step([RedriveAsked()], shell.now)


def test_an_endless_loop_goes_on_in_steps_and_ends_at_the_limit_of_events():
    loop = machine(
        A={"Type": "Pass", "Next": "B"},
        B={"Type": "Choice", "Choices": [{"Variable": "$.stop", "IsPresent": True, "Next": "C"}], "Default": "A"},
        C={"Type": "Succeed"},
    )
    shell = Shell(loop).start({})
    assert shell.batches[0] == [SetTimer(START)]
    result = shell.go_on().result
    assert (result.status, result.error) == ("FAILED", "States.Runtime")
    assert shell.now == START
    assert 110 < len(shell.log) < 140


def test_a_clock_that_is_set_back_does_not_matter():
    shell = Shell(machine(A={"Type": "Wait", "Seconds": 10, "End": True})).start()
    assert shell.execution.step([TimerDue()], START - 500) == [SetTimer(START + 10)]
    assert shell.execution.step([TimerDue()], START + 10) == [Finish("SUCCEEDED")]


def test_an_expression_that_may_take_long_is_evaluated_beside():
    state = {"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% $sum([1..4]) + $v %}", "End": True}
    definition = machine(A={"Type": "Pass", "Assign": {"v": 1}, "Next": "B"}, B=state)
    shell = Shell(definition).start({})
    [command] = shell.batches[0]
    assert isinstance(command, Evaluate)
    assert (command.state, command.phase, command.variables) == ("B", "leave", {"v": 1})
    assert shell.go_on().result.output == 11
    state["Output"] = "{% $error('mine') ~> $sum %}"
    assert run(definition, {}).error == "States.QueryEvaluationError"


def test_a_query_error_is_caught_and_runtime_errors_are_not():
    jsonata = {"QueryLanguage": "JSONata", "Arguments": "{% $states.input.nope %}"}
    state = {**task(Catch=[{"ErrorEquals": ["States.QueryEvaluationError"], "Next": "B"}]), **jsonata}
    assert run(machine(A=state, B=END), {}).output["Error"] == "States.QueryEvaluationError"
    state = task(Parameters={"x.$": "$.nope"}, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "B"}])
    assert run(machine(A=state, B=END), {}).error == "States.Runtime"


def test_the_context_object_has_the_fields_of_aws():
    shell = Shell(machine(A={"Type": "Pass", "Parameters": {"c.$": "$$"}, "End": True}))
    context = shell.run({"q": 1}).output["c"]
    assert context["Execution"] == {
        "Id": "execution-1",
        "Input": {"q": 1},
        "Name": "one",
        "RoleArn": "",
        "StartTime": "2023-11-14T22:13:20.000Z",
        "RedriveCount": 0,
    }
    assert context["State"] == {"Name": "A", "EnteredTime": "2023-11-14T22:13:20.000Z", "RetryCount": 0}
    assert context["StateMachine"] == {"Id": "flow", "Name": "flow"}


def test_a_value_that_grows_in_a_loop_is_bounded():
    loop = machine(
        A={"Type": "Pass", "Parameters": {"l.$": "$", "r.$": "$"}, "Next": "B"},
        B={"Type": "Choice", "Choices": [{"Variable": "$.stop", "IsPresent": True, "Next": "C"}], "Default": "A"},
        C={"Type": "Succeed"},
    )
    assert run(loop, {"x": 1}).error == "States.DataLimitExceeded"


def test_a_step_that_evaluates_much_makes_fewer_transitions():
    """A loop over long lists rests after a bounded number of steps of its queries, not of its transitions."""
    entered = []
    for output in ("{% {'a': [x + 1 for x in range(200)]} %}", "{% {'a': 1} %}"):
        states = {f"S{number}": {"Type": "Pass", "Output": output, "Next": f"S{number + 1}"} for number in range(240)}
        states["S240"] = {"Type": "Succeed"}
        shell = Shell({"StartAt": "S0", "QueryLanguage": "Python", "States": states}).start({})
        entered.append(len(shell.path))
    assert 1 <= entered[0] < entered[1] / 10
