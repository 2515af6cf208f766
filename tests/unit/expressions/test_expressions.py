"""Expressions of Python: what is allowed, what is refused, and the bounds."""

import pytest

from aliquot.expressions import Budget, EvaluationError, ExpressionRefusedError, compile_expression

NAMES = {"n": 3, "words": ["b", "a"], "row": {"k": 1, "deep": {"x": [1, 2]}}, "states": {"input": {"q": "hi"}}}

ALLOWED = [
    "1 + 2 * 3 - 4 / 2",
    "n // 2, n % 2, n ** 2, -n, +n, not n",
    "0 < n <= 3 and n != 4 or 'x'",
    "words[0] + words[-1]",
    "words[::-1]",
    "row['deep']['x'][1]",
    "{'a': n, **row}",
    "[w.upper() for w in words if w != 'c']",
    "[(i, w) for i, w in enumerate(words)]",
    "{w: len(w) for w in words}",
    "[x * y for x in range(3) for y in range(x)]",
    "f'{n:03d} {words[0]!r} {n / 7:.2f}'",
    "sorted(words, reverse=True)",
    "sum(x for x in [1, 2.5])",
    "max(words), min(1, 2), max([], default=0)",
    "','.join(words).split(',')",
    "'a-b'.partition('-')",
    "row.get('nope', 7), list(row.keys()), row.items()",
    "any(w == 'a' for w in words), all([])",
    "str(n) + str([1, 'x']), int('12'), float(n), bool(words), round(2.567, 1), abs(-n)",
    "n if words else None",
    "'k' in row, 'z' not in row, n is None",
    "dict(row, z=1), list('ab'), list(zip(words, [1, 2])), list(reversed(words))",
    "[1, 2] * 2 + [3]",
    "words == ['b', 'a']",
]


def as_json(value):
    if isinstance(value, list | tuple) or type(value).__name__ in {"dict_items", "dict_keys"}:
        return [as_json(part) for part in value]
    return {key: as_json(part) for key, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("source", ALLOWED)
def test_an_expression_has_the_value_that_python_gives_it(source):
    expected = eval(source, {}, dict(NAMES))  # noqa: S307 - the reference
    assert compile_expression(source).evaluate(NAMES) == as_json(expected)


@pytest.mark.parametrize(
    "source",
    [
        "().__class__",
        "words.__len__()",
        "row.k",
        "open('x')",
        "eval('1')",
        "__import__('os')",
        "getattr(words, 'append')",
        "words.append(1)",
        "'{0.__class__}'.format(1)",
        "(lambda: 1)()",
        "lambda: 1",
        "(x := 1)",
        "await n",
        "[*words]",
        "max(*words)",
        "dict(**row)",
        "{1, 2}",
        "b'x'",
        "1j",
        "...",
        "n @ n",
        "n << 2",
        "n is words",
        "f'{n:{n}}'",
        "f'{n:9999999}'",
        "[x async for x in words]",
        "states._x",
        "_x",
        "x = 1",
        "1 +",
        "",
        "[" * 60 + "]" * 60,
        "-" * 60 + "1",
        "1 + " * 5000 + "1",
    ],
)
def test_other_sources_are_refused(source):
    with pytest.raises(ExpressionRefusedError):
        compile_expression(source)


@pytest.mark.parametrize(
    "source",
    [
        "9 ** 9 ** 9",
        "10 ** 300 * 10 ** 300",
        "'x' * 10 ** 9",
        "[0] * 10 ** 9",
        "[[[0] * 1000] * 1000] * 1000",
        "[words for _ in range(90000)]",
        "[[y for y in range(1000)] for x in range(1000)]",
        "range(10 ** 9)",
        "sum(range(10 ** 9))",
        "'a'.replace('', 'x' * 900000).replace('', 'x' * 900000)",
        "('x' * 900000).join(['a', 'b', 'c'])",
        "[big for a in range(2)] == [big for a in range(2)] if [big, big] * 100 else 1",
        "str([big] * 100)",
        "2 ** 64",
        "[{'x': -(2 ** 63) - 1}]",
        "float('inf')",
        "[float('nan')]",
    ],
)
def test_work_and_sizes_are_bounded(source):
    with pytest.raises(EvaluationError):
        compile_expression(source).evaluate({**NAMES, "big": ["x" * 50_000] * 18})


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("row['z']", "KeyError"),
        ("words[9]", "IndexError"),
        ("words + 1", "TypeError"),
        ("nope", "UnboundLocalError"),
        ("int('x')", "ValueError"),
        ("n.upper()", "AttributeError"),
        ("'%s' % n", "TypeError"),
        ("{1: 2}", "TypeError"),
        ("[a for a, b in [[1]]]", "ValueError"),
        ("(-8) ** 0.5", "ValueError"),
        ("n[0]", "TypeError"),
        ("n[1:]", "TypeError"),
        ("states.result", "NameError"),
        ("sum(words)", "TypeError"),
        ("{'a': 1} * 2", "TypeError"),
    ],
)
def test_a_failure_names_the_exception_of_python(source, kind):
    with pytest.raises(EvaluationError) as failure:
        compile_expression(source).evaluate(NAMES)
    assert failure.value.kind == kind


def test_the_free_names_are_known():
    assert compile_expression("[a + b for a in c if max(d)]").names == ("c", "d", "b")


def test_an_evaluation_can_be_given_fewer_steps():
    expression = compile_expression("sum(range(3000))")
    assert expression.evaluate({}) == sum(range(3000))
    with pytest.raises(EvaluationError):
        expression.evaluate({}, Budget(1000))


def test_values_are_not_changed():
    names = {"words": ["b", "a"], "row": {"k": 1}}
    compile_expression("[sorted(words), {**row, 'z': 1}, words + ['c'], words[::-1]]").evaluate(names)
    assert names == {"words": ["b", "a"], "row": {"k": 1}}
