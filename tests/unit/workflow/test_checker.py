"""The checker tells every mistake at once, with the state, the field and the reason."""

import copy

import pytest
from workflow_definitions import BRANCHING, END, JSONATA, NESTED, TASKS, machine

from aliquot.workflow.language import read_definition
from aliquot.workflow.language.fields import REFUSED_FIELDS


def complaints(definition):
    return [complaint for complaint in read_definition(definition)[1] if not complaint.warning]


def places(definition):
    return {(complaint.state, complaint.field) for complaint in complaints(definition)}


def test_all_mistakes_are_told_at_once():
    definition = {
        "StartAt": "Nowhere",
        "Extra": 1,
        "TimeoutSeconds": 0,
        "States": {
            "A": {"Type": "Task", "Resource": "a b$", "Output": 1, "Retry": [{"ErrorEquals": []}], "Next": "Q"},
            "B": {"Type": "Pass", "InputPath": "x", "Next": "A", "End": True},
            "C": {"Type": "Strange"},
            "D": {"Type": "Choice", "Choices": [{"Variable": "$.v", "IsNull": 1, "Next": "A"}], "Next": "A"},
            "E": {"Type": "Wait", "Seconds": 1, "SecondsPath": "$.x", "Next": "E"},
        },
    }
    assert places(definition) == {
        *(("", "StartAt"), ("", "Extra"), ("", "TimeoutSeconds")),
        *(("A", "Resource"), ("A", "Output"), ("A", "Retry[0].ErrorEquals"), ("A", "Next")),
        *(("B", "InputPath"), ("B", "Next"), ("C", "Type"), ("D", "Choices[0]"), ("D", "Next"), ("E", "SecondsPath")),
    }


def changed(definition, path, value):
    copied = copy.deepcopy(definition)
    node = copied
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("definition", "path", "value", "place"),
    [
        (TASKS, ("States", "A", "HeartbeatSeconds"), 20, ("A", "HeartbeatSeconds")),
        (TASKS, ("States", "A", "TimeoutSeconds"), "x", ("A", "TimeoutSeconds")),
        (TASKS, ("States", "A", "ResultPath"), "$$.x", ("A", "ResultPath")),
        (TASKS, ("States", "A", "ResultPath"), "$.x[*]", ("A", "ResultPath")),
        (TASKS, ("States", "A", "Parameters", "x.$"), "nope", ("A", "Parameters")),
        (TASKS, ("States", "A", "Parameters", "x.$"), "States.UUID(1)", ("A", "Parameters")),
        (TASKS, ("States", "A", "Parameters", "x.$"), "$unassigned", ("A", "Parameters")),
        (TASKS, ("States", "A", "Retry", 0, "ErrorEquals"), ["States.ALL"], ("A", "Retry[0].ErrorEquals")),
        (TASKS, ("States", "A", "Retry", 1, "ErrorEquals"), ["States.ALL", "x"], ("A", "Retry[1].ErrorEquals")),
        (TASKS, ("States", "A", "Retry", 1, "MaxDelaySeconds"), 1, ("A", "Retry[1].MaxDelaySeconds")),
        (TASKS, ("States", "A", "Retry", 1, "JitterStrategy"), "SOME", ("A", "Retry[1].JitterStrategy")),
        (TASKS, ("States", "A", "Retry", 0, "BackoffRate"), 0.5, ("A", "Retry[0].BackoffRate")),
        (TASKS, ("States", "A", "Catch", 0, "Next"), "Gone", ("A", "Catch[0].Next")),
        (TASKS, ("States", "A", "Catch", 0, "Output"), 1, ("A", "Catch[0].Output")),
        (TASKS, ("States", "A", "Credentials"), {}, ("A", "Credentials")),
        (TASKS, ("States", "A", "Resource"), "arn:aws:states:::sqs:sendMessage", ("A", "Resource")),
        (TASKS, ("States", "A" * 81), {"Type": "Succeed"}, ("A" * 81, "name")),
        (TASKS, ("Version",), "2.0", ("", "Version")),
        (BRANCHING, ("States", "Start", "Choices"), [], ("Start", "Choices")),
        (BRANCHING, ("States", "Start", "Default"), "Gone", ("Start", "Default")),
        (BRANCHING, ("States", "W", "Seconds"), -1, ("W", "Seconds")),
        (BRANCHING, ("States", "W3", "Timestamp"), "tomorrow", ("W3", "Timestamp")),
        (BRANCHING, ("States", "Lost"), END, ("Lost", "Next")),
        (NESTED, ("States", "P", "Branches"), [], ("P", "Branches")),
        (NESTED, ("States", "P", "Branches", 0, "StartAt"), "M", ("P", "Branches[0].StartAt")),
        (NESTED, ("States", "P", "Branches", 0, "States", "M"), END, ("M", "name")),
        (NESTED, ("States", "P", "Branches", 1, "States", "P2", "Next"), "M", ("P2", "Next")),
        (NESTED, ("States", "M", "ItemReader"), {}, ("M", "ItemReader")),
        (NESTED, ("States", "M", "ResultWriter"), {}, ("M", "ResultWriter")),
        (NESTED, ("States", "M", "Iterator"), machine(Q=END), ("M", "Iterator")),
        (NESTED, ("States", "M", "ItemBatcher"), {"BatchInput": 1}, ("M", "ItemBatcher")),
        (NESTED, ("States", "M", "ToleratedFailurePercentage"), 101, ("M", "ToleratedFailurePercentage")),
        (NESTED, ("States", "F", "ErrorPath"), "$.e[*]", ("F", "ErrorPath")),
        (JSONATA, ("States", "B", "Choices", 0, "Condition"), "{% $nope %}", ("B", "Choices[0].Condition")),
        (JSONATA, ("States", "A", "Arguments"), "{% $states.result %}", ("A", "Arguments")),
        (JSONATA, ("States", "A", "Output"), "{% a.b %}", ("A", "Output")),
        (JSONATA, ("States", "W", "QueryLanguage"), "JSONPath", ("W", "QueryLanguage")),
        (JSONATA, ("States", "W", "Output"), "{% $states.result %}", ("W", "Output")),
        (JSONATA, ("States", "A", "Assign", "states"), 1, ("A", "Assign")),
        (JSONATA, ("States", "C", "ItemProcessor", "States", "I", "Assign"), {"y": 1}, ("I", "Assign")),
        (JSONATA, ("QueryLanguage",), "XPath", ("", "QueryLanguage")),
    ],
)
def test_a_mistake_is_told_with_state_and_field(definition, path, value, place):
    changed_definition = changed(definition, path, value)
    assert place in places(changed_definition)
    assert read_definition(changed_definition)[0] is None


def test_the_distributed_mode_is_refused_by_name():
    path = ("States", "M", "ItemProcessor", "ProcessorConfig", "Mode")
    [complaint] = complaints(changed(NESTED, path, "DISTRIBUTED"))
    assert "DISTRIBUTED" in complaint.reason
    assert REFUSED_FIELDS.keys() == {"ItemReader", "ResultWriter", "Credentials"}


def test_states_without_a_way_to_an_end_are_told():
    loop = machine(A={"Type": "Pass", "Next": "B"}, B={"Type": "Pass", "Next": "A"})
    assert places(loop) == {("A", "Next"), ("B", "Next")}
    loop["States"]["B"] = {
        "Type": "Choice",
        "Choices": [{"Variable": "$.x", "IsNull": True, "Next": "A"}],
        "Default": "C",
    }
    loop["States"]["C"] = {"Type": "Succeed"}
    assert not complaints(loop)


def test_a_variable_must_be_assigned_on_a_way_to_its_reader():
    reader = {"Type": "Pass", "Parameters": {"x.$": "$v"}, "End": True}
    assert places(machine(A={"Type": "Pass", "Next": "B"}, B=reader)) == {("B", "Parameters")}
    assert not complaints(machine(A={"Type": "Pass", "Assign": {"v": 1}, "Next": "B"}, B=reader))
    own = {**reader, "Assign": {"v.$": "$v"}}
    assert places(machine(A=own)) == {("A", "Assign"), ("A", "Parameters")}
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.a", "IsNull": True, "Next": "B", "Assign": {"v": 1}}]}
    assert not complaints(machine(A={**choice, "Default": "C"}, B=reader, C=END))
    inner = {"Type": "Parallel", "Branches": [machine(I=reader)], "End": True}
    assert not complaints(machine(A={"Type": "Pass", "Assign": {"v": 1}, "Next": "P"}, P=inner))
    assert places(machine(P=inner)) == {("I", "Parameters")}


def test_a_choice_without_default_is_a_warning():
    definition = changed(BRANCHING, ("States", "Start", "Default"), ...)
    definition["States"]["W"]["Next"] = "Done"
    machine_read, told = read_definition(definition)
    assert machine_read is not None
    assert [(complaint.state, complaint.field) for complaint in told] == [("Start", "Default")]


@pytest.mark.parametrize("definition", [None, [], "x", {}, {"StartAt": 1, "States": []}, {"States": {"A": 1}}])
def test_what_is_no_definition_is_refused(definition):
    assert read_definition(definition)[0] is None


def test_nested_machines_are_bounded():
    definition = machine(S0=END)
    for depth in range(1, 30):
        definition = machine(**{f"S{depth}": {"Type": "Parallel", "Branches": [definition], "End": True}})
    assert any("nested" in complaint.reason for complaint in complaints(definition))


def test_the_python_language_has_the_fields_of_jsonata():
    definition = {
        "QueryLanguage": "Python",
        **machine(
            A={
                "Type": "Task",
                "Resource": "f.waitForTaskToken",
                "Arguments": {"x": "{% states.input['a'] + 1 %}"},
                "Assign": {"y": "{% states.result %}"},
                "Next": "B",
            },
            B={"Type": "Pass", "Output": "{% [y, 1] %}", "End": True},
        ),
    }
    assert not complaints(definition)
    definition["States"]["B"]["Output"] = "{% z %}"
    assert places(definition) == {("B", "Output")}
