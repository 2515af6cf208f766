"""A checked definition, compiled state by state, runs like one that is compiled as a whole.

Short JSONata that is evaluated without the package has the value that the package gives.
"""

import jsonata  # noqa: F401 - it changes the recursion limit, which hypothesis must see first
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_definitions import DEFINITIONS
from workflow_scopes import scope
from workflow_shell import SECRET, Shell, error
from workflow_strategies import VALUE, jsonata_machines, machines

from aliquot.workflow.graph import graph_of
from aliquot.workflow.interpreter import Evaluate, Execution, Started, evaluate
from aliquot.workflow.language import checked_machine, read_definition
from aliquot.workflow.query.jsonata import compile_jsonata
from aliquot.workflow.query.short_jsonata import MAX_SHORT_VALUE_SIZE, UnusualError, compile_short

SHAPES = {"n": 2, "f": 1.5, "s": "log-a", "l": [1], "e": [], "o": {"a": {"b": 3}}, "b": True, "z": None}
OPERATORS = ["+", "-", "*", "&", "=", "!=", "<", ">", "<=", ">=", "and", "or"]
OPERANDS = [
    *(f"$states.input.{name}" for name in SHAPES),
    *("$states.input.o.a.b", "$v", "$w.x", "1", "0", "12", "'x'", '"y z"', "true", "false", "null", "$states.input"),
    "$states.context.Execution.Id",
]
EXPRESSIONS = st.recursive(
    st.sampled_from(OPERANDS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"{parts[0]} ? {parts[1]} : {parts[2]}"),
    ),
    max_leaves=5,
)


class CheckedShell(Shell):
    """A shell whose machine is compiled as the server compiles it."""

    def __init__(self, definition, functions=None):
        super().__init__(definition, functions)
        self.machine = checked_machine(definition)
        self.execution = Execution(self.machine, secret=SECRET, observe=self._observe)


def ended(shell):
    result = shell.run(VALUE)
    return result.status, result.output, result.error, shell.path


@given(definition=st.one_of(machines(), jsonata_machines()))
def test_a_checked_machine_ends_as_one_that_was_compiled_whole(definition):
    assert ended(CheckedShell(definition)) == ended(Shell(definition))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_checked_machine_has_the_same_graph(name):
    whole, _ = read_definition(DEFINITIONS[name])
    checked = checked_machine(DEFINITIONS[name])
    assert graph_of(checked) == graph_of(whole)
    assert checked.timeout_s == whole.timeout_s
    for state in checked.states.values():
        assert (state.enter is None, state.leave is None) == (
            whole.states[state.name].enter is None,
            whole.states[state.name].leave is None,
        )


def test_a_checked_task_calls_its_function_with_the_same_arguments():
    task = {"Type": "Task", "Resource": "f", "Arguments": {"n": "{% $states.input.n * 2 %}", "l": "{% [1..3] %}"}}
    catch = {"Catch": [{"ErrorEquals": ["E"], "Output": "{% $states.errorOutput.Error & '!' %}", "Next": "Last"}]}
    states = {"First": {**task, **catch, "End": True}, "Last": {"Type": "Succeed"}}
    definition = {"QueryLanguage": "JSONata", "StartAt": "First", "States": states}
    echo = {"f": lambda arguments, _: arguments}
    assert CheckedShell(definition, echo).run(VALUE).output == {"n": 4, "l": [1, 2, 3]}
    assert CheckedShell(definition, {"f": error("E")}).run(VALUE).output == "E!"


@given(EXPRESSIONS)
def test_a_short_expression_has_the_value_that_the_package_gives(source):
    run = compile_short(source)
    if run is None:
        return
    where = scope(SHAPES, {"v": 7, "w": {"x": "y"}})
    try:
        value = run(where)
    except UnusualError:
        return
    expected = compile_jsonata(source).run(where)
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    "source",
    ["$states.input.n + 1", "$states.input.n > 2 and $states.input.b", "$v", "$states.input.s = 'a' ? 1 : $v & '!'"],
)
def test_usual_expressions_are_short(source):
    assert compile_short(source) is not None


@pytest.mark.parametrize(
    "source",
    [
        *("$sum($v)", "[1..3]", "$states.input.l[0]", "$v.a.(b)", "/a/", "1.5", "1 +", "", "$v ~> $sum", "$v in [1]"),
        *(
            "`a`",
            "$states",
            "$v := 1",
            "((((((((((((1))))))))))))",
            "1" + " + 1" * 60,
            "$v.and",
            "'a\\n'",
            "-1",
            "1 / 2",
        ),
    ],
)
def test_other_expressions_are_left_to_the_package(source):
    assert compile_short(source) is None


def test_a_value_that_is_too_large_to_look_at_is_unusual():
    with pytest.raises(UnusualError):
        compile_short("$v")(scope(None, {"v": ["x" * MAX_SHORT_VALUE_SIZE]}))


@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Pass", "Parameters": {f"k{number}.$": "$.a" for number in range(100)}, "End": True},
        {"Type": "Pass", "InputPath": "$." + "a" * 4000, "End": True},
        {"Type": "Pass", "QueryLanguage": "Python", "Output": ["{% 1 + 1 %}"] * 100, "End": True},
        {
            "Type": "Choice",
            "Choices": [{"Variable": "$.a", "NumericEquals": number, "Next": "B"} for number in range(1, 100)],
            "Default": "A",
        },
    ],
)
def test_a_state_with_many_or_long_queries_is_not_compiled_on_the_event_loop(state):
    definition = {"StartAt": "A", "States": {"A": state, "B": {"Type": "Succeed"}}}
    value = {"a": 1, "a" * 4000: 2}
    here, whole = Execution(checked_machine(definition)), checked_machine(definition, whole=True)
    (command,) = here.step([Started("x", value)], 0.0)
    assert isinstance(command, Evaluate)
    (finish,) = here.step([evaluate(whole, command)], 0.0)
    assert finish == Execution(whole).step([Started("x", value)], 0.0)[-1]
