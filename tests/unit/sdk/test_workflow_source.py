"""The source of a workflow: what its statements become, and what is refused with line, reason and advice."""

import json
import re

import pytest
from places import DOCS
from python_modules import module_of, shell_of

import aliquot
from aliquot.sdk.workflow import here
from aliquot.sdk.workflow.mistakes import WorkflowRefusedError
from aliquot.workflow.language import read_definition

HEAD = """
import time, os
import aliquot
from aliquot import Retry

app = aliquot.App("unit")
LIMITS = {"low": 2, "names": ["a", "b"]}
GENTLE = Retry(attempts=2, on="Function.Lost", interval="2s", max_delay="10s", jitter=True)

class Settings:
    HIGH = 9

class Rejected(Exception):
    pass

class Odd(Exception):
    def __init__(self, text, code):
        super().__init__(text)

def helper(x):
    return x

@app.function
def f(x):
    return x + 1

@app.function
def g(x, y=1, **more):
    return {"x": x, "y": y, **more}

@app.function
def at(x, /):
    return x
"""

ERROR_TEXTS = """
try:
    raise Rejected(f'no {x}')
except Rejected as e:
    return [str(e), f'{e}!', type(e).__name__]
"""
OUTER_HANDLER = """
try:
    try:
        raise KeyError('k')
    except ValueError:
        return 1
except KeyError as e:
    return str(e)
"""
RAISED_AGAIN = """
try:
    try:
        return 1 / 0
    except ZeroDivisionError:
        raise
except ArithmeticError:
    return 'caught'
"""


def flow(body, parameters="x"):
    """Return a module with a workflow of these lines."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return module_of(f"{HEAD}\n@app.workflow\ndef flow({parameters}):\n{lines}\n")


def states(body, parameters="x"):
    definition = flow(body, parameters).flow.definition()
    machine, complaints = read_definition(definition)
    assert machine is not None, complaints
    assert not complaints
    return definition["States"]


def result(body, *arguments, parameters="x", **named):
    """Return the result of plain Python, which must be that of the graph."""
    module = flow(body, parameters)
    expected = json.loads(json.dumps(module.flow(*arguments, **named)))
    names = [name.split("=")[0].strip() for name in parameters.split(",") if name]
    finished = shell_of(module, module.flow).run({**dict(zip(names, arguments, strict=False)), **named})
    assert (finished.error, finished.output) == (None, expected)
    return expected


def test_states_are_named_after_their_functions_and_say_where_they_come_from():
    made = states("y = f(f(x))\nif y > 3:\n    return g(y)\nreturn y")
    assert list(made) == ["flow(x)", "f", "f (2)", "if y > 3", "g", "return y"]
    assert made["g"]["Resource"] == "unit.g"
    assert made["g"]["Arguments"] == {"x": "{% y %}"}
    assert made["g"]["Comment"].endswith(".py:39")
    assert made["if y > 3"]["Choices"] == [{"Condition": "{% y > 3 %}", "Next": "g"}]


def test_constants_of_the_module_stand_in_the_definition():
    assert states("return [x, LIMITS['low'], Settings.HIGH]")["return [x, LIMITS['low'], Settings.HIGH]"]["Output"] == (
        "{% [x, {'low': 2, 'names': ['a', 'b']}['low'], 9] %}"
    )


def test_options_become_fields_of_the_task():
    made = states("return f.options(retry=[Retry(4, on=(KeyError, Rejected)), GENTLE], timeout='1m')(x)")["f"]
    assert made["TimeoutSeconds"] == 60
    first, second = made["Retry"]
    assert first == {
        "ErrorEquals": ["KeyError", "Rejected"],
        "IntervalSeconds": 1,
        "MaxAttempts": 3,
        "BackoffRate": 2.0,
    }
    assert second["ErrorEquals"] == ["Function.Lost"]
    assert (second["MaxDelaySeconds"], second["JitterStrategy"], second["MaxAttempts"]) == (10, "FULL", 1)


def test_waits_callbacks_and_maps_have_their_fields():
    made = states(
        """
aliquot.sleep("5m")
aliquot.sleep(x)
aliquot.wait_for(g, x, y=2, timeout="2d", heartbeat="1h")
return f.map([x, 2], concurrency=3)
"""
    )
    assert made["aliquot.sleep('5m')"]["Seconds"] == 300
    assert made["aliquot.sleep(x)"]["Seconds"] == "{% x %}"
    asked = made["wait for g"]
    assert asked["Resource"] == "unit.g.waitForTaskToken"
    assert (asked["TimeoutSeconds"], asked["HeartbeatSeconds"]) == (172_800, 3600)
    assert made["f.map"]["MaxConcurrency"] == 3
    assert made["f.map"]["ItemProcessor"]["States"]["f"]["Arguments"] == {"x": "{% states.input %}"}


def test_an_elif_without_calls_is_a_rule_of_the_same_choice():
    made = states("if x > 3:\n    y = 1\nelif x > 2:\n    y = 2\nelif f(x) > 1:\n    y = 3\nelse:\n    y = 4\nreturn y")
    assert len(made["if x > 3"]["Choices"]) == 2
    assert len(made["if f(x) > 1"]["Choices"]) == 1


def test_a_handler_is_a_catch_of_every_state_of_the_body_that_can_fail():
    made = states(
        "try:\n    y = f(x)\n    z = 1 / y\n    x = 2\nexcept (ValueError, LookupError):\n    return 0\nreturn z"
    )
    for name in ("f", "z = 1 / y"):
        assert made[name]["Catch"][0]["ErrorEquals"][:2] == ["ValueError", "UnicodeError"]
        assert "KeyError" in made[name]["Catch"][0]["ErrorEquals"]
    assert "Catch" not in made["x = 2"]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("a = b = f(x)\nreturn [a, b]", [4, 4]),
        ("_, states = g(x).items()\nreturn states", ["y", 1]),
        ("d = {'a': 1}\nd['b'] = f(x)\nd['a'] += 3\nreturn d", {"a": 4, "b": 4}),
        ("xs = []\nfor y in range(3):\n    xs.append(f(y))\n    xs.extend([y])\nreturn xs", [1, 0, 2, 1, 3, 2]),
        ("for y in [1, 2]:\n    if f(y) == x:\n        break\nelse:\n    return 'none'\nreturn y", 2),
        ("while True:\n    x = f(x)\n    if x > 7:\n        return x", 8),
        (
            ERROR_TEXTS,
            None,
        ),
        (
            OUTER_HANDLER,
            None,
        ),
        (
            RAISED_AGAIN,
            None,
        ),
        ("return {str(y): f(y) for y in [x, 9]}", {"3": 4, "9": 10}),
        ("return [g(y, z) for y, z in [[1, 2], [3, 4]] if z > y]", None),
        ("return [f(f(y)) + x for y in [1, 2]]", [6, 7]),
        ("y: int = x\ny: list\nreturn f(y) if x else None", 4),
        ("'''A text.'''\nassert x == 3, 'three'\nreturn x and f(x) and f(f(x))", 5),
        ("y = aliquot.parallel(f(x), x, [f(z) for z in [1]])\nreturn y", [4, 3, [2]]),
        ("f(x)", None),
        ("return f(f.map([x])[0])", 5),
        ("return [[g(a, y=b) for a in range(b)] for b in [1, 2]]", None),
        ("return f(1) and 0 or f(5)", 6),
        ("for _ in range(2):\n    for _ in range(2):\n        x = f(x)\nreturn x", 7),
        ("return f\"{f(x)!r:>5}|{x:.2f}|{LIMITS['names'][0]}\"", "    4|3.00|a"),
        ("if x == 4:\n    return 1\n...", None),
        ("return g(f(x), y=f(1), z=f(2))", {"x": 4, "y": 2, "z": 3}),
    ],
)
def test_a_construct_runs_as_in_python(body, value):
    found = result(body, 3)
    assert value is None or found == value


def test_parameters_have_their_defaults_and_may_be_left_out():
    assert result("return [x, y, z]", 1, parameters="x, y=LIMITS['names'], *, z=2", z=5) == [1, ["a", "b"], 5]
    assert result("return 3", parameters="") == 3


def test_a_call_is_tried_again_as_in_the_graph(monkeypatch):
    waits = []
    monkeypatch.setattr(here, "sleep_for", waits.append)
    module = module_of(
        f"{HEAD}\nseen = []\n@app.function\ndef third(x):\n    seen.append(x)\n    if len(seen) < 3:\n"
        "        raise KeyError(x)\n    return seen\n@app.workflow\ndef flow(x):\n"
        "    return third.options(retry=Retry(3, on=LookupError, interval='2s'))(x)\n"
    )
    assert module.flow(1) == [1, 1, 1]
    assert waits == [2, 4]
    module.seen.clear()
    assert shell_of(module, module.flow).run({"x": 1}).output == [1, 1, 1]


REFUSED = [
    ("y = helper(x)", "put @app.function over it"),
    ("y = os.getcwd()", "call it in a function of the app"),
    ("y = f.remote(x)", "write f(…)"),
    ("y = f(x, 1)", "too many positional arguments"),
    ("y = at(x)", "by its place alone"),
    ("y = f(*x)", "write the arguments out"),
    ("print(x)", "call it in a function of the app"),
    ("time.sleep(3)", "aliquot.sleep"),
    ("aliquot.sleep('100ms')", "whole seconds"),
    ("aliquot.parallel()", "parallel(f(x), g(x))"),
    ("aliquot.parallel(*[f(x)])", "[f(x) for x in xs]"),
    ("y = lambda: 1", "write the expression in place"),
    ("y = {1, 2}", "write a list"),
    ("return (y for y in x)", "write a list: […]"),
    (f"return [{', '.join(['f(x)'] * 101)}]", "write it in several lines"),
    ("y = (f(z) for z in x)", "write a list: […]"),
    ("y = {1: 2}", "are text"),
    ("y = x.name", "write […]['name']"),
    ("y = x.format(1)", "write an f-string"),
    ("x.sort()", "write xs = sorted(xs)"),
    ("x.casefolded()", "there are capitalize, casefold"),
    ("y = x.split(',', maxsplit=1)", "by their place"),
    ("y = (z := f(x))", "in a line of its own"),
    ("y = nowhere", "define it above"),
    ("y = os", "only constants that JSON can hold"),
    ("import json", "at the top of the file"),
    ("with open(x) as y:\n    pass", "in a function of the app"),
    ("def inner():\n    pass", "move it to the top"),
    ("match x:\n    case 1:\n        pass", "write if and elif"),
    ("global y", "pass it on"),
    ("del x", "leave the variable"),
    ("try:\n    f(x)\nfinally:\n    f(x)", "there is no finally"),
    ("try:\n    f(x)\nexcept x:\n    pass", "classes of exceptions"),
    ("try:\n    f(x)\nexcept Rejected as e:\n    g(e)", "write str(e)"),
    ("raise Odd('a', 1)", "of its own"),
    ("raise ValueError(1, 2)", "one text"),
    ("raise", "no error to raise again"),
    ("raise x", "class of exceptions"),
    ("x.append(1)", "write x = x + [1]"),
    ("y = x\ny += x", "write y = y + x"),
    ("y = []\nz = [y]\ny.append(1)", "another name may hold"),
    ("x['a'] = 1", "{**x, key: value}"),
    ("a, *b = x", "write plain names"),
    ("y = [f(a) for a in x if f(a)]", "before"),
    ("y = any(f(a) for a in x)", "any([…])"),
    ("y = 1 < f(x) < f(2)", "write two comparisons"),
    ("while True:\n    f(x)", "never ends"),
    ("y = f.options(retries=3)(x)", "options takes retry"),
    ("y = f.options(timeout=x)(1)", "fixed when the workflow is deployed"),
    ("y = f.map(x, concurrency=0)", "from 1 on"),
    ("y = g.map(x, 3)", "write g.map"),
    ("aliquot.wait_for(helper, x)", "takes a function of an app"),
]


@pytest.mark.parametrize(("body", "said"), REFUSED)
def test_a_construct_that_cannot_be_translated_is_refused_with_advice(body, said):
    with pytest.raises(WorkflowRefusedError) as refused:
        flow(body)
    assert said in str(refused.value)
    assert ".py:" in str(refused.value)


def test_all_mistakes_are_told_at_once_with_their_lines():
    body = "y = helper(x)\nif x:\n    import json\nfor z in nowhere:\n    print(z)\nreturn {1, 2}"
    with pytest.raises(WorkflowRefusedError) as refused:
        flow(body, "x, *rest")
    first = HEAD.count("\n") + 3
    assert [one.line - first for one in refused.value.mistakes] == [0, 1, 3, 4, 5, 6]
    assert refused.value.mistakes[1].construct == "helper(x)"


def test_a_workflow_without_source_is_refused():
    app = aliquot.App("nowhere")
    namespace = {"app": app}
    exec(compile("def lost(x):\n    return x\n", "/nowhere.py", "exec"), namespace)  # noqa: S102 - a test's own source
    with pytest.raises(WorkflowRefusedError, match="cannot be read"):
        app.workflow(namespace["lost"])


def test_the_example_of_the_reference_is_a_workflow():
    page = (DOCS / "reference" / "python-workflows.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = ("quick", "shrink", "large", "find_faces", "describe")
    functions = [f"@app.function\ndef {name}(image): ...\n" for name in names]
    functions += [f"@app.function\ndef {name}(text, more): ...\n" for name in ("crop", "publish", "ask_editor")]
    before = "class Rejected(Exception): ...\n" + "".join(functions)
    made = module_of(example.replace("@app.workflow", f"{before}@app.workflow", 1)).caption.definition()
    assert made["TimeoutSeconds"] == 3600
    kinds = [state["Type"] for state in made["States"].values()]
    assert kinds == ["Pass", "Task", "Task", "Choice", "Task", "Parallel", "Map", "Task", "Wait", "Task"]


def test_a_name_is_used_once():
    with pytest.raises(ValueError, match="has a function 'f' already"):
        module_of(f"{HEAD}\n@app.workflow\ndef f(x):\n    return x\n")
