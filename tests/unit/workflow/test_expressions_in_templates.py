"""Payload templates in the three query languages, JSONata's bounds, and Python's expressions."""

import pytest
from workflow_scopes import NOW, scope

from aliquot.workflow.errors import QueryRefusedError, StateError
from aliquot.workflow.query.jsonata import compile_jsonata
from aliquot.workflow.query.jsonata_syntax import ADDED, reads_context
from aliquot.workflow.query.languages import compile_template
from aliquot.workflow.query.scope import TooLongError
from aliquot.workflow.times import format_time

VALUE = {"a": 1, "none": None, "items": [{"p": 1, "n": "x"}, {"p": 5, "n": "y"}], "f": 1.0}


def run(language, template, variables=None, **options):
    return compile_template(language, template).run(scope(VALUE, variables, **options))


def test_a_path_template_replaces_the_fields_that_end_in_a_mark():
    template = {"x.$": "$.a", "y": {"z.$": "States.Array($v)"}, "list": [{"q.$": "$.none"}, "$.a"], "same": "$.a"}
    assert run("JSONPath", template, {"v": 3}) == {"x": 1, "y": {"z": [3]}, "list": [{"q": None}, "$.a"], "same": "$.a"}


def test_a_template_without_queries_is_a_constant():
    template = {"a": [1, {"b": "{% no expression in JSONPath %}"}]}
    query = compile_template("JSONPath", template)
    assert query.constant
    assert query.run(scope(VALUE)) is template
    assert compile_template("JSONata", {"a": ["$states", 1]}).constant


@pytest.mark.parametrize(("language", "source"), [("Python", "states.input"), ("JSONata", "$states.input")])
def test_the_expressions_of_a_template_together_are_bounded(language, source):
    query = compile_template(language, [f"{{% {source} %}}"] * 3)
    with pytest.raises(StateError, match="DataLimitExceeded"):
        query.run(scope("x" * 400_000))


@pytest.mark.parametrize(
    ("language", "template"),
    [
        ("JSONPath", {"a.$": 1}),
        ("JSONPath", {"a.$": "a"}),
        ("JSONPath", {"a.$": "$.a", "a": 1}),
        ("JSONata", "{% a"),
        ("JSONata", "{%}"),
        ("JSONata", "{% a %}"),
        ("JSONata", "{% * %}"),
        ("JSONata", "{% $ %}"),
        ("JSONata", "{% $$ %}"),
        ("JSONata", "{% $$.a %}"),
        ("JSONata", "{% $eval('1') %}"),
        ("JSONata", "{% 1 + %}"),
        ("JSONata", "{% $map([1], function($x){ y }) %}"),
        ("JSONata", {"x": ["{% b %}"]}),
        ("Python", "{% x = 1 %}"),
        ("Python", "{% states.input.a %}"),
    ],
)
def test_a_wrong_template_is_refused(language, template):
    with pytest.raises(QueryRefusedError):
        compile_template(language, template)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("$states.input.a", 1),
        ("$states.input.f", 1.0),
        ("$states.input.none", None),
        ("$states.input", VALUE),
        ("$states.input.items[p > 2].n", "y"),
        ("$states.input.items.(p + 1)", [2, 6]),
        ("$states.input.items{n: p}", {"x": 1, "y": 5}),
        ("$states.input.items^(>p).n", ["y", "x"]),
        ("$states.context.Execution.Id", "run-1"),
        ("$v & '!'", "7!"),
        ("$nothing", None),
        ("$sum([1..4])", 10),
        ("$map($states.input.items, function($i) { $i.p * 2 })", [2, 10]),
        ("($x := 3; $x * $x)", 9),
        ("$replace('a1b2', /[0-9]/, '')", "ab"),
        ("{'gone': $states.input.nope}", {}),
        ("$partition([1, 2, 3], 2)", [[1, 2], [3]]),
        ("$range(1, 9, 4)", [1, 5, 9]),
        ("$range(3, 1, -1)", [3, 2, 1]),
        ("$hash('input data', 'SHA-1')", "aaff4a450a104cd177d28d18d74485e8cae074b7"),
        ("$parse('[1, null]')", [1, None]),
        ("$parse('null')", None),
        ("$now()", format_time(NOW)),
        ("$millis()", NOW * 1000),
        ("$random(7) = $random(7)", True),
        ("$length($uuid())", 36),
    ],
)
def test_jsonata_has_the_value(expression, value):
    assert run("JSONata", f"{{% {expression} %}}", {"v": 7, "nothing": None}) == value


@pytest.mark.parametrize(
    "expression",
    [
        "$states.input.nope",
        "$nope",
        "$nope(1)",
        "'a' + 1",
        "$uppercase",
        "function($x) { $x }",
        "1 / 0",
        "$parse('{')",
        "$error('mine')",
        "$hash('x', 'CRC')",
        "$partition([1], 0)",
        "($f := function($n) { $f($n + 1) + 1 }; $f(0))",
    ],
)
def test_a_failed_or_undefined_jsonata_is_a_query_error(expression):
    with pytest.raises(StateError) as failure:
        run("JSONata", f"{{% {expression} %}}")
    assert failure.value.error == "States.QueryEvaluationError"


@pytest.mark.parametrize(
    "expression",
    [
        "($s := 'xxxxxxxx'; " + "$s := $s & $s; " * 40 + "$s)",
        "($a := [1, 2]; " + "$a := $append($a, $a); " * 40 + "$count($a))",
        "($a := {'x': [1, 2]}; " + "$a := {'l': $a, 'r': $a}; " * 40 + "$a)",
    ],
)
def test_jsonata_cannot_build_a_huge_value(expression):
    with pytest.raises(StateError) as failure:
        run("JSONata", f"{{% {expression} %}}")
    assert failure.value.error == "States.DataLimitExceeded"


@pytest.mark.parametrize(
    ("expression", "slow"),
    [
        ("$states.input.items[p > 2].n", False),
        ("$uppercase($v) & 'x'", False),
        ("$string($v)", False),
        ("$string([$v, $v])", True),
        ("$contains($v, /(a+)+$/)", True),
        ("[1..9]", True),
        ("$map($v, $string)", True),
        ("function($x) { $x }", True),
        ("($x := 1; $x)", True),
        ("$pad('x', 1000000000)", True),
        ("$states.input.**", True),
        ("$v ~> $sum", True),
    ],
)
def test_expressions_that_may_take_long_are_known(expression, slow):
    assert compile_jsonata(expression).slow is slow


def test_an_expression_of_many_steps_is_not_finished_on_the_event_loop():
    wide = {"items": [{"p": number} for number in range(3000)]}
    query = compile_template("JSONata", "{% $count($states.input.items[p > 5]) %}")
    assert not query.slow
    with pytest.raises(TooLongError):
        query.run(scope(wide, max_steps=1000))
    assert query.run(scope(wide)) == 2994
    with pytest.raises(TooLongError):
        run("Python", "{% sum(range(30000)) %}", max_steps=1000)


@pytest.mark.parametrize(
    ("language", "field", "query"),
    [
        ("JSONPath", "x{}.$", "$..p"),
        ("JSONPath", "x{}.$", "States.ArrayContains($.items, 1)"),
        ("JSONata", "x{}", "{% $states.input.items[p > 2].p %}"),
        ("Python", "x{}", "{% [i for i in states.input['items']] %}"),
    ],
)
def test_the_queries_of_a_template_share_their_steps(language, field, query):
    wide = {"items": [{"p": number} for number in range(70)]}
    few = compile_template(language, {field.format(number): query for number in range(2)})
    many = compile_template(language, {field.format(number): query for number in range(300)})
    assert len(few.run(scope(wide, max_steps=1000))) == 2
    with pytest.raises(TooLongError):
        many.run(scope(wide, max_steps=1000))
    assert len(many.run(scope(wide))) == 300


def test_variables_and_fields_of_states_are_known():
    query = compile_jsonata(
        "$map($list, function($x, $i) { $x & $other }) & ($y := $states.result.z; $y & $string($v))"
    )
    assert set(query.variables) == {"list", "other", "v"}
    assert query.parts == ("result",)
    python = compile_template("Python", "{% [x + n for x in states.result] %}")
    assert python.variables == ("n",)
    assert python.parts == ("result",)


def test_python_expressions_read_variables_and_states():
    assert run("Python", {"x": "{% [i['p'] + n for i in states.input['items']] %}"}, {"n": 1}) == {"x": [2, 6]}
    assert run("Python", "{% states.context['Execution']['Id'] %}") == "run-1"
    with pytest.raises(StateError) as failure:
        run("Python", "{% states.input['nope'] %}")
    assert failure.value.error == "KeyError"


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("$states.input.context", False),
        ("$states.result & $states.input.n", False),
        ("$states.context.Execution.Id", True),
        ("$keys($states)", True),
        ("$states.`context`", True),
        ("states['context']", True),
        ("$states.inputs", True),
    ],
)
def test_the_context_object_is_made_only_for_expressions_that_may_read_it(source, reads):
    assert reads_context(source) is reads


def test_the_added_functions_are_known_to_the_inspection():
    for name in ADDED:
        assert compile_jsonata(f"${name}()").variables == ()
