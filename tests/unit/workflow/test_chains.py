"""Tasks in a row can run in one sandbox. The execution ends as if each had run on its own."""

import pytest
from workflow_shell import SECRET, Shell

from aliquot.testing.workflow import compiled
from aliquot.workflow.errors import StateError
from aliquot.workflow.history import replay_history
from aliquot.workflow.interpreter import Execution, RedriveAsked, TaskEnded
from aliquot.workflow.language import checked_machine
from aliquot.workflow.language.chains import MAX_LINKS, MAX_STATES_WITH_CHAINS, MAX_TEXT_WITH_CHAINS


class ChainShell(Shell):
    """A shell that runs as much of each chain as it is allowed to, in one task."""

    def __init__(self, definition, functions, links=99):
        super().__init__(definition, functions)
        self.machine = checked_machine(definition)
        self.execution = Execution(self.machine, secret=SECRET, observe=self._observe)
        self.links = links
        self.dispatched = []

    def _run(self, command):
        chain = (command.chain.tasks() if command.chain else ())[: self.links]
        while chain and not chain[-1].may_end:
            chain = chain[:-1]
        self.dispatched.append([command.state, *(task.state for task in chain)])
        results = []
        try:
            results.append(self.functions[command.resource](command.arguments, 0))
            for following in chain:
                results.append(self.functions[following.resource](built(following.arguments, results), 0))
        except StateError as error:
            self._later(0, TaskEnded(command.task, error=error.error, cause=error.cause, chained=len(results)))
            return
        self._later(0, TaskEnded(command.task, results[-1], chained=len(chain)))


def built(arguments, results):
    if arguments is None:
        return results[-1]
    made = {}
    for name, argument in arguments.items():
        value = argument.value if argument.step is None else results[argument.step]
        for key in argument.path:
            value = value[key]
        made[name] = value
    return made


def states(language=None, **named):
    extra = {"QueryLanguage": language} if language else {}
    return {**extra, "StartAt": next(iter(named)), "States": named}


def task(name, following=None, **fields):
    return {"Type": "Task", "Resource": name, **fields, **({"Next": following} if following else {"End": True})}


def add(amount):
    return lambda arguments, _: {"n": arguments["n"] + amount}


PLAIN = states(A=task("one", "B"), B=task("two", "C"), C=task("three", ResultSelector={"m.$": "$.n"}))
RESULT = "{% states.result %}"
PYTHON = states(
    "Python",
    In={"Type": "Pass", "Assign": {"x": "{% states.input['x'] %}"}, "Next": "A"},
    A=task("pre", "B", Arguments={"n": "{% x %}"}, Assign={"f": RESULT}),
    B=task("mix", "C", Arguments={"a": "{% f['n'] %}", "b": "{% x %}", "c": [5]}, Assign={"p": RESULT}),
    C=task("mix", Arguments={"a": "{% p %}", "b": "{% f['n'] %}", "c": []}, Output="{% states.result + 1 %}"),
)
FUNCTIONS = {
    "one": add(1),
    "two": add(10),
    "three": add(100),
    "pre": add(1),
    "mix": lambda arguments, _: arguments["a"] * 10 + arguments["b"] + len(arguments["c"]),
}


@pytest.mark.parametrize("links", [0, 1, 2])
@pytest.mark.parametrize(("definition", "value"), [(PLAIN, {"n": 0}), (PYTHON, {"x": 3})])
def test_a_chain_gives_the_output_of_single_tasks(definition, value, links):
    alone = Shell(definition, FUNCTIONS)
    chained = ChainShell(definition, FUNCTIONS, links)
    assert chained.run(value) == alone.run(value)
    assert chained.path == alone.path
    types = [event["type"] for event in replay_history(compiled(definition), alone.log)]
    assert [event["type"] for event in replay_history(chained.machine, chained.log)] == types


def test_the_whole_row_is_one_dispatch():
    shell = ChainShell(PLAIN, FUNCTIONS)
    shell.run({"n": 0})
    assert shell.dispatched == [["A", "B", "C"]]
    assert shell.batches[0][0].chain.tasks()[1].arguments is None


def test_a_chain_ends_only_where_nobody_reads_what_stayed_inside():
    shell = ChainShell(PYTHON, FUNCTIONS, links=1)  # C reads the result of A, so B cannot be the end
    shell.run({"x": 3})
    assert shell.dispatched == [["A"], ["B", "C"]]


def chain_of(definition, name="A"):
    return [link.state for link in checked_machine(definition).states[name].chain]


@pytest.mark.parametrize(
    "second",
    [
        task("two", Retry=[{"ErrorEquals": ["States.ALL"]}]),
        task("two", TimeoutSeconds=3),
        task("two", Parameters={"n": 1}),
        task("two", InputPath="$.n"),
        task("two", ResultPath="$.r"),
        task("two.waitForTaskToken"),
        task("arn:aws:states:::lambda:invoke"),
        {"Type": "Pass", "End": True},
    ],
)
def test_a_state_that_needs_more_than_the_result_before_it_is_no_link(second):
    assert chain_of(states(A=task("one", "B"), B=second)) == []


@pytest.mark.parametrize("fields", [{"ResultPath": "$.r"}, {"Retry": [{"ErrorEquals": ["E"]}]}, {"OutputPath": "$.n"}])
def test_a_state_whose_result_is_changed_or_retried_begins_no_chain(fields):
    assert chain_of(states(A=task("one", "B", **fields), B=task("two"))) == []


def python_pair(**after):
    return states(
        "Python",
        A=task("pre", "B", Arguments={"n": 1}, Assign={"f": RESULT}),
        B=task("pre", next(iter(after), None), Arguments={"n": "{% f %}"}, Assign={"g": RESULT}),
        **after,
    )


@pytest.mark.parametrize(
    ("after", "links"),
    [
        ({}, ["B"]),
        ({"C": {"Type": "Pass", "Output": "{% g %}", "End": True}}, ["B"]),
        ({"C": {"Type": "Pass", "Output": "{% f %}", "End": True}}, []),
        ({"C": {"Type": "Choice", "Choices": [{"Condition": "{% g > 1 %}", "Next": "A"}], "Default": "D"}}, ["B"]),
        ({"C": {"Type": "Choice", "Choices": [{"Condition": "{% g > 1 %}", "Next": "B"}], "Default": "D"}}, []),
        ({"C": {"Type": "Choice", "Choices": [{"Condition": "{% f > 1 %}", "Next": "A"}], "Default": "D"}}, []),
    ],
)
def test_results_that_are_read_later_stay_no_secret_of_a_chain(after, links):
    last = {"D": {"Type": "Succeed"}} if "Choice" in str(after) else {}
    assert chain_of(python_pair(**after, **last)) == links


def test_computed_arguments_end_a_chain():
    pair = python_pair()
    pair["States"]["B"]["Arguments"] = {"n": "{% f + 1 %}"}
    assert chain_of(pair) == []


def test_a_failure_inside_a_chain_fails_the_execution_and_a_redrive_runs_the_chain_again():
    failing = [True]

    def two(arguments, _):
        if failing:
            failing.pop()
            raise StateError("E", "why")
        return add(10)(arguments, 0)

    shell = ChainShell(PLAIN, {**FUNCTIONS, "two": two})
    ended = shell.run({"n": 0})
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "E", "why")
    history = replay_history(shell.machine, shell.log)
    assert [event["type"] for event in history][-2:] == ["TaskFailed", "ExecutionFailed"]
    assert shell.path == ["A", "B"]
    shell.send(RedriveAsked())
    assert shell.go_on().result.output == {"m": 111}
    assert shell.dispatched == [["A", "B", "C"], ["A", "B", "C"]]


def long_row(count):
    names = [f"S{number}" for number in range(count)]
    row = {
        name: task("inc", following, Arguments={"n": "{% f %}"}, Assign={"f": RESULT})
        for name, following in zip(names, [*names[1:], None], strict=True)
    }
    return states("Python", In={"Type": "Pass", "Assign": {"f": 1}, "Next": "S0"}, **row)


def test_the_search_for_chains_is_bounded():
    assert len(chain_of(long_row(100), "S0")) == MAX_LINKS
    assert chain_of(long_row(MAX_STATES_WITH_CHAINS), "S0") == []
    assert chain_of(python_pair(C={"Type": "Pass", "Output": "x" * MAX_TEXT_WITH_CHAINS, "End": True})) == []
    long = python_pair()
    long["States"]["B"]["Arguments"] = {"n": "{% f" + "[0]" * 100 + " %}"}
    assert chain_of(long) == []


def test_a_variable_that_every_step_assigns_again_is_that_of_the_last():
    shell = ChainShell(long_row(30), {"inc": lambda arguments, _: arguments["n"] + 1})
    assert shell.run({}).output == 31
    assert [len(names) for names in shell.dispatched] == [MAX_LINKS + 1, 30 - MAX_LINKS - 1]
