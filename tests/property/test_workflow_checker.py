"""The checker refuses every mutated definition that `statelint` refuses."""

import copy

import jsonata  # noqa: F401 - it changes the recursion limit, which hypothesis must see first
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_definitions import DEFINITIONS

from aliquot.workflow.language import read_definition

statelint = pytest.importorskip("statelint.linter", reason="statelint is a development dependency")
from statelint.config import Config  # noqa: E402
from statelint.problem import ProblemType  # noqa: E402

VALUES = [
    None,
    True,
    False,
    0,
    -1,
    3,
    2.5,
    "",
    "x",
    "$",
    "$.a",
    "$.a[*]",
    "{% 1 %}",
    [],
    {},
    ["x"],
    {"a": 1},
    "A",
    "End",
]
NAMES = [
    *("Type", "Next", "End", "Resource", "InputPath", "OutputPath", "ResultPath", "Parameters", "Arguments", "Output"),
    *("Result", "Seconds", "Timestamp", "Choices", "Default", "Error", "Cause", "Branches", "ItemProcessor", "Items"),
    *("ItemsPath", "Retry", "Catch", "ErrorEquals", "StartAt", "States", "MaxConcurrency", "TimeoutSeconds", "Bogus"),
    *(
        "Comment",
        "QueryLanguage",
        "HeartbeatSeconds",
        "ErrorPath",
        "SecondsPath",
        "IntervalSeconds",
        "Variable",
        "Version",
    ),
]
KINDS = ["Task", "Pass", "Wait", "Choice", "Succeed", "Fail", "Parallel", "Map", "Nope"]


def places(value, path=()):
    """Yield the path of every object in a definition."""
    if isinstance(value, dict):
        yield path
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from places(part, (*path, index))


@st.composite
def mutated(draw):
    definition = copy.deepcopy(DEFINITIONS[draw(st.sampled_from(sorted(DEFINITIONS)))])
    for _ in range(draw(st.integers(1, 2))):
        node = definition
        for key in draw(st.sampled_from(list(places(definition)))):
            node = node[key]
        how = draw(st.sampled_from(["delete", "set", "add", "rename", "type"]))
        if how == "type" and "Type" in node:
            node["Type"] = draw(st.sampled_from(KINDS))
        elif how == "add" or not node:
            node[draw(st.sampled_from(NAMES))] = draw(st.sampled_from(VALUES))
        else:
            key = draw(st.sampled_from(list(node)))
            value = node.pop(key)
            if how == "set":
                node[key] = draw(st.sampled_from(VALUES))
            elif how == "rename":
                node[draw(st.sampled_from(NAMES))] = value
    return definition


def lint(definition):
    config = Config(ignored_problem_types=[ProblemType.URI, ProblemType.FLOAT])
    try:
        problems = statelint.Linter.validate(definition, config)
    except TypeError:  # it crashes where an object stands for a name
        return []
    return [problem for problem in problems if '"{%' not in problem]  # it knows expressions in templates alone


@given(mutated())
def test_what_statelint_refuses_is_refused(definition):
    problems = lint(copy.deepcopy(definition))
    machine, complaints = read_definition(definition)
    assert not problems or machine is None, problems
    if machine is None:
        assert all(complaint.field and complaint.reason for complaint in complaints)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_definitions_themselves_are_accepted_by_both(name):
    assert not lint(copy.deepcopy(DEFINITIONS[name]))
    machine, complaints = read_definition(DEFINITIONS[name])
    assert machine is not None, complaints
    assert not [complaint for complaint in complaints if not complaint.warning]
