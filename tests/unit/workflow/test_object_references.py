"""References to objects that JSON cannot hold, in JSONata: expressions hand them on, and cannot look into them."""

import pytest

from aliquot.testing.workflow import WorkflowShell


class Picture:
    """An object that JSON cannot hold."""


FIRST, SECOND = Picture(), Picture()
RESULT = {"picture": FIRST, "score": 3, "pictures": [FIRST, SECOND]}


def evaluate(expression):
    """Return how an execution ends that takes the result of a task as its input, and evaluates an expression."""
    states = {
        "Load": {"Type": "Task", "Resource": "load", "Output": "{% $states.result %}", "Next": "Look"},
        "Look": {"Type": "Pass", "Output": f"{{% {expression} %}}", "End": True},
    }
    definition = {"QueryLanguage": "JSONata", "StartAt": "Load", "States": states}
    return WorkflowShell(definition, {"load": lambda _, __: RESULT}).run({})


@pytest.mark.parametrize(
    ("expression", "output"),
    [
        ("$states.input", RESULT),
        ("$states.input.picture", FIRST),
        ("$states.input.pictures[1]", SECOND),
        ("{'shown': $states.input.picture, 'n': $states.input.score + 1}", {"shown": FIRST, "n": 4}),
        ("$states.input.score > 1 ? $states.input.picture : null", FIRST),
        ("$map($states.input.pictures, function($v, $i){ [$v, $i] })", [[FIRST, 0], [SECOND, 1]]),
        ("$merge([$states.input, {'score': 4}])", {**RESULT, "score": 4}),
        ("$append($states.input.pictures, 1)", [FIRST, SECOND, 1]),
        ("$partition($states.input.pictures, 1)", [[FIRST], [SECOND]]),
        ("($p := $states.input.picture; [$p, $p])", [FIRST, FIRST]),
        ("$count($states.input.pictures)", 2),
        ("$exists($states.input.picture)", True),
        ("$states.input.picture = $states.input.pictures[0]", False),  # each place has a reference of its own
        ("$states.input.picture = 'Picture'", False),
        ("$boolean($states.input.picture)", False),
    ],
)  # fmt: skip
def test_expressions_hand_objects_on(expression, output):
    end = evaluate(expression)
    assert (end.status, end.output) == ("SUCCEEDED", output)


@pytest.mark.parametrize(
    "expression",
    [
        "$string($states.input.picture)",
        "$string($states.input)",
        "$states.input.picture & ''",
        "$states.input.picture + 1",
        "$states.input.picture.name",
        "$keys($states.input.picture)",
        "$length($states.input.picture)",
        "$hash($states.input.picture, 'MD5')",
        "$sort($states.input.pictures)",
        "$states.input.picture > $states.input.pictures[0]",
        "$uppercase($states.input.picture)",
    ],
)
def test_expressions_cannot_look_into_objects(expression):
    end = evaluate(expression)
    assert (end.status, end.error) == ("FAILED", "States.QueryEvaluationError")


def test_a_map_a_choice_and_variables_of_jsonata_take_objects():
    each = {
        "StartAt": "Show",
        "States": {"Show": {"Type": "Task", "Resource": "show", "Arguments": "{% $states.input %}", "End": True}},
    }
    states = {
        "Load": {"Type": "Task", "Resource": "load", "Assign": {"kept": "{% $states.result.picture %}"},
                 "Output": "{% $states.result %}", "Next": "Rate"},
        "Rate": {"Type": "Choice", "Default": "Bad",
                 "Choices": [{"Condition": "{% $states.input.score >= 3 and $exists($kept) %}", "Next": "All"}]},
        "All": {"Type": "Map", "Items": "{% $states.input.pictures %}", "ItemProcessor": each,
                "ItemSelector": {"p": "{% $states.context.Map.Item.Value %}", "kept": "{% $kept %}"}, "End": True},
        "Bad": {"Type": "Fail"},
    }  # fmt: skip
    definition = {"QueryLanguage": "JSONata", "StartAt": "Load", "States": states}
    seen = []

    def show(given, _):
        seen.append(given)
        return given["p"]

    end = WorkflowShell(definition, {"load": lambda _, __: RESULT, "show": show}).run({})
    assert seen == [{"p": FIRST, "kept": FIRST}, {"p": SECOND, "kept": FIRST}]
    assert end.output == [FIRST, SECOND]
