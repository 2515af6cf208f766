"""Parallel and Map states, variables and their scopes, and redrive."""

import pytest
from workflow_definitions import END, machine
from workflow_shell import FOREVER, START, After, Shell, error

from aliquot.workflow.errors import StateError
from aliquot.workflow.interpreter import CancelTask, Evaluate, Finish, RedriveAsked, RunTask, StopAsked, TaskEnded


def run(definition, value=None, functions=None):
    return Shell(definition, functions).run(value)


def task(**fields):
    return {"Type": "Task", "Resource": "f", "End": True, **fields}


def parallel(*branches, **fields):
    return {"Type": "Parallel", "Branches": list(branches), "End": True, **fields}


def mapped(processor, **fields):
    return {"Type": "Map", "ItemProcessor": processor, "End": True, **fields}


def started(shell):
    return [command.arguments for batch in shell.batches for command in batch if isinstance(command, RunTask)]


def test_branches_run_side_by_side_and_their_results_are_in_order():
    branches = [machine(**{f"B{n}": task(Parameters={"wait": n, "in.$": "$"})}) for n in (3, 1, 2)]
    shell = Shell(machine(A=parallel(*branches)), {"f": lambda value, _: After(value["wait"], value)})
    assert [part["wait"] for part in shell.run("x").output] == [3, 1, 2]
    assert shell.now == START + 3


def test_a_failed_branch_cancels_the_others_and_gives_its_own_error():
    state = parallel(
        machine(B=task()),
        machine(C=task(Resource="bad")),
        machine(D=task()),
        Catch=[{"ErrorEquals": ["X"], "ResultPath": "$.e", "Next": "Z"}],
    )
    shell = Shell(machine(A=state, Z=END), {"f": lambda *_: FOREVER, "bad": error("X", "c")})
    assert shell.run({"a": 1}).output == {"a": 1, "e": {"Error": "X", "Cause": "c"}}
    assert sum(isinstance(command, CancelTask) for batch in shell.batches for command in batch) == 2
    assert not shell.running


def test_a_branch_that_was_about_to_start_is_aborted_with_the_others():
    state = parallel(
        machine(B={"Type": "Fail", "Error": "X"}),
        machine(C=task()),
        Catch=[{"ErrorEquals": ["X"], "Next": "Z"}],
    )
    shell = Shell(machine(A=state, Z=task(Resource="z")), {"z": lambda *_: "caught"}).start({})
    assert [command.state for command in shell.batches[0] if isinstance(command, RunTask)] == ["Z"]
    assert shell.go_on().result.output == "caught"


def test_a_runtime_error_in_a_branch_ends_the_execution():
    inner = machine(B={"Type": "Pass", "InputPath": "$.nope", "End": True})
    state = parallel(inner, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Z"}])
    assert run(machine(A=state, Z=END), {}).error == "States.Runtime"


def test_a_parallel_state_is_retried_as_a_whole():
    attempts = iter([error("X"), lambda *_: 2])
    state = parallel(
        machine(B=task()),
        machine(C={"Type": "Pass", "Result": 1, "End": True}),
        Retry=[{"ErrorEquals": ["X"]}],
        ResultSelector={"both.$": "$"},
    )
    shell = Shell(machine(A=state), {"f": lambda *_: next(attempts)()})
    assert shell.run({}).output == {"both": [2, 1]}


@pytest.mark.parametrize(("limit", "seconds"), [(0, 1), (1, 6), (2, 3), (4, 2), (100, 1)])
def test_a_map_state_runs_so_many_iterations_at_once(limit, seconds):
    shell = Shell(
        machine(A=mapped(machine(B=task()), MaxConcurrency=limit)), {"f": lambda value, _: After(1, value * 2)}
    )
    assert shell.run([1, 2, 3, 4, 5, 6]).output == [2, 4, 6, 8, 10, 12]
    assert shell.now == START + seconds


def test_a_map_state_selects_the_input_of_each_iteration():
    state = mapped(
        machine(B={"Type": "Pass", "Parameters": {"in.$": "$", "index.$": "$$.Map.Item.Index"}, "End": True}),
        ItemsPath="$.items",
        ItemSelector={"v.$": "$$.Map.Item.Value", "i.$": "$$.Map.Item.Index", "common.$": "$.c"},
        MaxConcurrencyPath="$.n",
        ResultPath="$.out",
    )
    output = run(machine(A=state), {"items": ["a", "b"], "c": 7, "n": 1}).output
    assert output["out"] == [
        {"in": {"v": "a", "i": 0, "common": 7}, "index": 0},
        {"in": {"v": "b", "i": 1, "common": 7}, "index": 1},
    ]
    assert output["items"] == ["a", "b"]


def test_a_map_state_without_items_and_with_what_is_no_array():
    assert run(machine(A=mapped(machine(B=END))), []).output == []
    assert run(machine(A=mapped(machine(B=END))), {}).error == "States.Runtime"
    jsonata = mapped(machine(B=END), QueryLanguage="JSONata", Items="{% 'x' %}")
    assert run(machine(A=jsonata), {}).error == "States.QueryEvaluationError"


def failing(indices):
    def run_one(value, *_):
        if value in indices:
            raise StateError("X", f"item {value}")
        return value

    return run_one


@pytest.mark.parametrize(
    ("fields", "bad", "expected"),
    [
        ({}, [1], "X"),
        ({"ToleratedFailureCount": 1}, [1], None),
        ({"ToleratedFailureCount": 1}, [1, 3], "States.ExceedToleratedFailureThreshold"),
        ({"ToleratedFailurePercentage": 50}, [1, 3], None),
        ({"ToleratedFailurePercentage": 50}, [0, 1, 3], "States.ExceedToleratedFailureThreshold"),
        ({"ToleratedFailureCountPath": "$[4]"}, [0, 1], None),
        ({"ToleratedFailurePercentage": 100}, [0, 1, 2, 3, 4], None),
    ],
)
def test_tolerated_failures_stand_in_the_result(fields, bad, expected):
    result = run(machine(A=mapped(machine(B=task()), **fields)), [0, 1, 2, 3, 4], {"f": failing(bad)})
    if expected:
        assert result.error == expected
    else:
        failed = {index: {"Error": "X", "Cause": f"item {index}"} for index in bad}
        assert result.output == [failed.get(index, index) for index in range(5)]


def test_items_are_batched():
    batcher = {"MaxItemsPerBatch": 2, "BatchInput": {"c.$": "$[0]"}}
    state = mapped(machine(B=END), ItemBatcher=batcher, ItemSelector={"v.$": "$$.Map.Item.Value"})
    assert run(machine(A=state), [5, 6, 7]).output == [
        {"BatchInput": {"c": 5}, "Items": [{"v": 5}, {"v": 6}]},
        {"BatchInput": {"c": 5}, "Items": [{"v": 7}]},
    ]
    by_size = mapped(machine(B=END), ItemBatcher={"MaxInputBytesPerBatch": 5})
    assert [len(part["Items"]) for part in run(machine(A=by_size), ["ab", "c", "d", "efgh"]).output] == [1, 1, 1, 1]
    assert [len(part["Items"]) for part in run(machine(A=by_size), [1, 2, 3, 4, 5, 66]).output] == [5, 1]


def test_the_inputs_of_many_iterations_are_selected_beside_the_event_loop():
    state = mapped(
        machine(B=END), ItemSelector={"i.$": "$$.Map.Item.Index"}, ResultSelector={"n.$": "States.ArrayLength($)"}
    )
    shell = Shell(machine(A=state)).start(list(range(3000)))
    assert isinstance(shell.batches[0][0], Evaluate)
    assert shell.go_on().result.output == {"n": 3000}


def test_at_most_256_tasks_are_in_flight():
    shell = Shell(machine(A=mapped(machine(B=task()))), {"f": lambda value, _: After(1, value)}).start(list(range(600)))
    assert len(shell.running) == 256
    assert shell.go_on().result.output == list(range(600))
    assert shell.now == START + 3


def test_nested_forks_have_their_items():
    inner = mapped(machine(C={"Type": "Pass", "Parameters": {"v.$": "$", "i.$": "$$.Map.Item.Index"}, "End": True}))
    output = run(machine(A=mapped(machine(B=inner))), [[1], [2, 3]]).output
    assert output == [[{"v": 1, "i": 0}], [{"v": 2, "i": 0}, {"v": 3, "i": 1}]]


def test_assign_sees_the_values_of_entry():
    definition = machine(
        A={"Type": "Pass", "Assign": {"x": 1, "y": 2}, "Next": "B"},
        B={"Type": "Pass", "Assign": {"x.$": "$y", "y.$": "$x", "z.$": "$.in"}, "Next": "C"},
        C={"Type": "Pass", "Parameters": {"x.$": "$x", "y.$": "$y", "z.$": "$z"}, "End": True},
    )
    assert run(definition, {"in": 3}).output == {"x": 2, "y": 1, "z": 3}


def test_variables_of_a_branch_stay_in_it():
    inner = machine(
        B={"Type": "Pass", "Assign": {"mine.$": "States.MathAdd($x, $)"}, "Next": "C"},
        C={"Type": "Pass", "Parameters": {"v.$": "$mine"}, "End": True},
    )
    definition = machine(
        A={"Type": "Pass", "Assign": {"x": 10}, "Next": "M"},
        M={**mapped(inner), "Next": "Z", "Assign": {"all.$": "$[*].v"}},
        Z={"Type": "Pass", "Parameters": {"all.$": "$all", "x.$": "$x"}, "End": True},
    )
    del definition["States"]["M"]["End"]
    assert run(definition, [1, 2]).output == {"all": [11, 12], "x": 10}


def test_choice_rules_and_catchers_assign():
    definition = machine(
        A={
            "Type": "Choice",
            "Choices": [{"Variable": "$.n", "NumericEquals": 1, "Assign": {"v": "rule"}, "Next": "B"}],
            "Assign": {"v": "default"},
            "Default": "B",
        },
        B=task(Catch=[{"ErrorEquals": ["X"], "Assign": {"why.$": "$.Cause"}, "ResultPath": None, "Next": "C"}]),
        C={"Type": "Pass", "Parameters": {"v.$": "$v", "why.$": "$why"}, "End": True},
    )
    assert run(definition, {"n": 1}, {"f": error("X", "c")}).output == {"v": "rule", "why": "c"}
    assert run(definition, {"n": 2}, {"f": error("X", "c")}).output == {"v": "default", "why": "c"}


EXPRESSIONS = {
    "JSONata": ("$states.context.State.Name", "$states.result", "$r > 3", "$r + $states.input"),
    "Python": ("states.context['State']['Name']", "states.result", "r > 3", "r + states.input"),
}


@pytest.mark.parametrize("language", EXPRESSIONS)
def test_jsonata_and_python_run_all_states(language):
    name, result, condition, total = (f"{{% {source} %}}" for source in EXPRESSIONS[language])
    first = task(Arguments={"x": name}, Assign={"r": result}, Next="B")
    del first["End"]
    definition = {
        "QueryLanguage": language,
        **machine(
            A=first,
            B={"Type": "Choice", "Choices": [{"Condition": condition, "Next": "C", "Output": "{% [1, 2] %}"}]},
            C=mapped(machine(D={"Type": "Pass", "Output": total, "End": True})),
        ),
    }
    shell = Shell(definition, {"f": lambda value, _: 4 if value == {"x": "A"} else 0})
    assert shell.run({}) == Finish("SUCCEEDED", [5, 6])


def test_redrive_takes_up_a_failed_task_with_a_new_entry():
    healthy = []
    definition = machine(A={"Type": "Pass", "Assign": {"v": 5}, "Next": "B"}, B=task(Parameters={"v.$": "$v"}))
    shell = Shell(definition, {"f": lambda value, _: value["v"] if healthy else error("X")()})
    assert shell.run({}).error == "X"
    healthy.append(True)
    shell.send(RedriveAsked())
    assert shell.go_on().result == Finish("SUCCEEDED", 5)
    assert shell.execution.redrives == 1
    assert started(shell) == [{"v": 5}] * 2


def test_redrive_keeps_the_results_of_branches_that_succeeded():
    calls = []

    def work(value, *_):
        calls.append(value)
        if value == 2 and calls.count(2) == 1:
            raise StateError("X")
        return After(1 if value == 1 else 0, value)

    branches = [machine(**{f"B{n}": task(Parameters={"n": n}, InputPath="$")}) for n in range(4)]
    shell = Shell(machine(A=parallel(*branches)), {"f": lambda value, attempt: work(value["n"], attempt)})
    shell.start({})
    assert shell.go_on().result.error == "X"
    shell.send(RedriveAsked())
    assert shell.go_on().result.output == [0, 1, 2, 3]
    assert calls.count(0) == 1
    assert calls.count(2) == 2


def test_redrive_of_a_map_runs_failed_and_missing_iterations():
    bad = [1, 3]
    calls = []

    def work(value, *_):
        calls.append(value)
        return failing(bad)(value)

    state = mapped(machine(B=task()), ToleratedFailureCount=1, MaxConcurrency=1)
    shell = Shell(machine(A=state), {"f": work})
    assert shell.run(list(range(6))).error == "States.ExceedToleratedFailureThreshold"
    assert calls == [0, 1, 2, 3]
    bad.clear()
    shell.send(RedriveAsked())
    assert shell.go_on().result.output == list(range(6))
    assert sorted(calls) == [0, 1, 1, 2, 3, 3, 4, 5]


def test_redrive_after_stop_and_after_a_timeout():
    definition = {"TimeoutSeconds": 10, **machine(A={"Type": "Wait", "Seconds": 4, "Next": "B"}, B=task())}
    shell = Shell(definition, {"f": lambda *_: FOREVER}).start()
    shell.go_on(until=START + 2)
    shell.send(StopAsked())
    assert shell.result.status == "ABORTED"
    shell.send(RedriveAsked())
    shell.go_on(until=START + 5)
    assert not shell.running  # the wait begins again
    shell.go_on()
    assert (shell.result.status, shell.now) == ("TIMED_OUT", START + 12)
    shell.send(RedriveAsked())
    shell.send(TaskEnded(next(iter(shell.running)), "late but good"))
    assert shell.result.output == "late but good"


def test_too_many_items_and_too_many_events_end_the_execution():
    each = {"StartAt": "Z", "States": {"Z": {"Type": "Pass", "End": True}}}
    definition = machine(A={"Type": "Map", "ItemProcessor": each, "End": True})
    refused = Shell(definition).run([0] * 100_001)
    assert (refused.status, "100000" in refused.cause) == ("FAILED", True)
    long = Shell(definition).run([0] * 40_000)
    assert (long.error, "events" in long.cause) == ("States.Runtime", True)
