"""Choice rules of JSONPath: comparisons, tests of types, and And, Or, Not.

A comparison holds only between values of its type. A missing Variable fails the state, except for IsPresent.
"""

import re
from collections.abc import Callable, Mapping

from aliquot.workflow.errors import QueryRefusedError
from aliquot.workflow.query.jsonpath import Path, compile_path, compile_reference_path
from aliquot.workflow.query.scope import MISSING, Scope
from aliquot.workflow.query.templates import Query, joined
from aliquot.workflow.times import parse_time
from aliquot.workflow.values import Value, is_number, kind_of

Compare = Callable[[Value, Value], bool]
MAX_NESTED_RULES = 20
OTHER_FIELDS = {"Variable", "Next", "Comment", "Assign", "Output"}


def _is_time(value: Value) -> bool:
    return isinstance(value, str) and parse_time(value) is not None


def _is_text(value: Value) -> bool:
    return isinstance(value, str)


def _is_boolean(value: Value) -> bool:
    return isinstance(value, bool)


ORDERS: dict[str, Compare] = {
    "Equals": lambda left, right: left == right,
    "LessThan": lambda left, right: left < right,
    "GreaterThan": lambda left, right: left > right,
    "LessThanEquals": lambda left, right: left <= right,
    "GreaterThanEquals": lambda left, right: left >= right,
}
KINDS: dict[str, Callable[[Value], bool]] = {
    "String": _is_text,
    "Numeric": is_number,
    "Timestamp": _is_time,
    "Boolean": _is_boolean,
}


def _typed(kind: str, order: str) -> Compare:
    fits, compare = KINDS[kind], ORDERS[order]
    if kind == "Timestamp":
        return lambda left, right: fits(left) and fits(right) and compare(parse_time(left), parse_time(right))
    return lambda left, right: fits(left) and fits(right) and compare(left, right)


COMPARISONS: dict[str, tuple[str, Compare]] = {
    **{
        f"{kind}{order}": (kind, _typed(kind, order))
        for kind in KINDS
        for order in ORDERS
        if kind != "Boolean" or order == "Equals"
    },
}

TESTS: dict[str, Callable[[Value], bool]] = {
    "IsBoolean": _is_boolean,
    "IsNull": lambda value: value is None,
    "IsNumeric": is_number,
    "IsString": _is_text,
    "IsTimestamp": _is_time,
}
IS_PRESENT = "IsPresent"
STRING_MATCHES = "StringMatches"
OPERATORS = (*COMPARISONS, *(f"{name}Path" for name in COMPARISONS), *TESTS, IS_PRESENT, STRING_MATCHES)


def compile_rule(rule: Value, depth: int = 0) -> Query:
    """Compile a choice rule, or refuse it."""
    if not isinstance(rule, Mapping):
        raise QueryRefusedError(f"a choice rule is an object, not {kind_of(rule)}")
    if depth > MAX_NESTED_RULES:
        raise QueryRefusedError(f"choice rules are nested more than {MAX_NESTED_RULES} deep")
    if not isinstance(rule.get("Comment", ""), str):
        raise QueryRefusedError(f"Comment has a string, not {kind_of(rule['Comment'])}")
    operators = [name for name in rule if name not in OTHER_FIELDS]
    if len(operators) != 1:
        found = ", ".join(operators) or "none"
        raise QueryRefusedError(
            f"a choice rule has one operator, not {found}; there are And, Or, Not, {', '.join(OPERATORS)}"
        )
    name = operators[0]
    if name in {"And", "Or", "Not"}:
        return _combined(name, rule, depth)
    if name not in OPERATORS:
        raise QueryRefusedError(f"{name!r} is no operator; there are And, Or, Not, {', '.join(OPERATORS)}")
    if not isinstance(rule.get("Variable"), str):
        raise QueryRefusedError(f"a rule with {name} needs Variable, a path")
    return _simple(name, compile_path(rule["Variable"]), rule[name])


def _combined(name: str, rule: Mapping[str, Value], depth: int) -> Query:
    if "Variable" in rule:
        raise QueryRefusedError(f"a rule with {name} has no Variable of its own")
    inner = [rule[name]] if name == "Not" else rule[name]
    if not isinstance(inner, list) or not inner:
        raise QueryRefusedError(f"{name} has a list of rules, which must not be empty")
    for part in inner:
        if isinstance(part, dict) and any(field in part for field in ("Next", "Assign", "Output")):
            raise QueryRefusedError(f"Next, Assign and Output stand beside {name}, not in the rules inside it")
    queries = [compile_rule(part, depth + 1) for part in inner]
    runs = [query.run for query in queries]
    if name == "Not":
        return joined(queries, lambda scope: not runs[0](scope))
    if name == "And":
        return joined(queries, lambda scope: all(run(scope) for run in runs))
    return joined(queries, lambda scope: any(run(scope) for run in runs))


def _names(*paths: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path.variable for path in paths if path.variable))


def _simple(name: str, path: Path, expected: Value) -> Query:
    if name == IS_PRESENT or name in TESTS:
        if not isinstance(expected, bool):
            raise QueryRefusedError(f"{name} has true or false, not {kind_of(expected)}")
        return Query(_test(name, path, expected=expected), _names(path))
    if name == STRING_MATCHES:
        if not isinstance(expected, str):
            raise QueryRefusedError(f"StringMatches has a string, not {kind_of(expected)}")
        matches = wildcard(expected)

        def match(scope: Scope) -> bool:
            value = path(scope)
            return isinstance(value, str) and matches(value)

        return Query(match, _names(path))
    if name.endswith("Path"):
        other = compile_reference_path(expected).path if isinstance(expected, str) else None
        if other is None:
            raise QueryRefusedError(f"{name} has a path, not {kind_of(expected)}")
        compare = COMPARISONS[name.removesuffix("Path")][1]
        return Query(lambda scope: compare(path(scope), other(scope)), _names(path, other))
    kind, compare = COMPARISONS[name]
    if not KINDS[kind](expected):
        raise QueryRefusedError(f"{name} has a {kind.lower()} value, not {expected!r}")
    return Query(lambda scope: compare(path(scope), expected), _names(path))


def _test(name: str, path: Path, *, expected: bool) -> Callable[[Scope], bool]:
    if name == IS_PRESENT:

        def present(scope: Scope) -> bool:
            if path.variable and path.variable not in scope.variables:
                return not expected
            value = path.find(scope)
            return (value is not MISSING and (path.definite or bool(value))) is expected

        return present
    test = TESTS[name]
    return lambda scope: test(path(scope)) is expected


def wildcard(pattern: str) -> Callable[[str], bool]:
    r"""Return the test of a pattern in which `*` stands for any text, and `\*` for an asterisk.

    The parts between the asterisks are searched from left to right, so the test takes linear time for each part.
    """
    parts = [re.sub(r"\\([*\\])", r"\1", part) for part in _unescaped_split(pattern)]
    if len(parts) == 1:
        return lambda text: text == parts[0]
    first, *middle, last = parts

    def matches(text: str) -> bool:
        if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
            return False
        position, end = len(first), len(text) - len(last)
        for part in middle:
            position = text.find(part, position, end)
            if position < 0:
                return False
            position += len(part)
        return True

    return matches


def _unescaped_split(pattern: str) -> list[str]:
    parts = [""]
    marks = iter(pattern)
    for mark in marks:
        if mark == "*":
            parts.append("")
        else:
            parts[-1] += mark + (next(marks, "") if mark == "\\" else "")
    return parts
