"""Choice rules of JSONPath, and the cases that were recorded on AWS."""

import json
from pathlib import Path

import pytest
from workflow_scopes import scope

from aliquot.workflow.errors import QueryRefusedError, StateError
from aliquot.workflow.query.choice import compile_rule

CASES = Path(__file__).parents[3].parent / "shared" / "data" / "asl" / "choice_cases.json"


def test_all_recorded_cases_are_decided_as_on_aws():
    if not CASES.exists():
        pytest.skip(f"{CASES} with the cases recorded on AWS is not there")
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    assert len(cases) == 427
    wrong = []
    for case in cases:
        rule = {"Variable": "$.Variable", case["operator"]: case["input"]["Value"] if case["literal"] else "$.Value"}
        if compile_rule(rule).run(scope(case["input"])) is not case["takes_branch"]:
            wrong.append(case)
    assert not wrong


def holds(rule, value, variables=None):
    return compile_rule(rule).run(scope(value, variables))


@pytest.mark.parametrize(
    ("operator", "expected", "value", "matches"),
    [
        ("StringMatches", "log-*.txt", "log-a.txt", True),
        ("StringMatches", "log-*.txt", "log-.txt", True),
        ("StringMatches", "log-*.txt", "log.txt", False),
        ("StringMatches", "*a*b*", "xxaxxbxx", True),
        ("StringMatches", "*a*b*", "xxbxxaxx", False),
        ("StringMatches", "a*a", "a", False),
        ("StringMatches", r"a\*", "a*", True),
        ("StringMatches", r"a\*", "ab", False),
        ("StringMatches", r"a\\*", "a\\b", True),
        ("StringMatches", "*", "", True),
        ("StringMatches", "x", 3, False),
        ("TimestampEquals", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", True),
        ("TimestampLessThan", "2024-01-01T00:00:00.500Z", "2024-01-01T00:00:00.4Z", True),
        ("TimestampGreaterThanEquals", "2024-02-29T00:00:00Z", "2023-12-31T23:59:59Z", False),
        ("TimestampEquals", "2024-01-01T00:00:00Z", "yesterday", False),
        ("IsTimestamp", True, "2024-02-29T12:00:00Z", True),
        ("IsTimestamp", True, "2023-02-29T12:00:00Z", False),
        ("IsTimestamp", False, "2024-02-29", True),
        ("IsNull", True, None, True),
        ("BooleanEquals", False, 0, False),
    ],
)
def test_a_rule_matches(operator, expected, value, matches):
    assert holds({"Variable": "$.v", operator: expected}, {"v": value}) is matches


def test_rules_are_combined():
    small = {"Variable": "$.n", "NumericLessThan": 3}
    even = {"Variable": "$.even", "BooleanEquals": True}
    assert holds({"And": [small, even]}, {"n": 2, "even": True})
    assert not holds({"And": [small, even]}, {"n": 2, "even": False})
    assert holds({"Or": [small, even]}, {"n": 9, "even": True})
    assert holds({"Not": {"Or": [small, even]}}, {"n": 9, "even": False})


def test_a_missing_variable_fails_the_state_except_for_is_present():
    with pytest.raises(StateError) as failure:
        holds({"Variable": "$.nope", "IsNull": True}, {})
    assert failure.value.error == "States.Runtime"
    assert not holds({"Variable": "$.nope", "IsPresent": True}, {})
    assert holds({"Variable": "$.nope", "IsPresent": False}, {})
    assert holds({"Variable": "$nope", "IsPresent": False}, {})
    assert holds({"Variable": "$.nope[*]", "IsPresent": False}, {})
    assert holds({"Variable": "$v.x", "NumericEqualsPath": "$.y"}, {"y": 1.0}, {"v": {"x": 1}})


@pytest.mark.parametrize(
    "rule",
    [
        {},
        "x",
        {"Variable": "$.a"},
        {"Variable": "$.a", "Nope": 1},
        {"StringEquals": "x"},
        {"Variable": "a", "StringEquals": "x"},
        {"Variable": "$.a", "StringEquals": 1},
        {"Variable": "$.a", "NumericEquals": "1"},
        {"Variable": "$.a", "NumericEquals": True},
        {"Variable": "$.a", "TimestampEquals": "today"},
        {"Variable": "$.a", "IsNull": "true"},
        {"Variable": "$.a", "StringEqualsPath": "a"},
        {"Variable": "$.a", "StringEqualsPath": 3},
        {"Variable": "$.a", "StringMatches": 3},
        {"Variable": "$.a", "StringEquals": "x", "IsNull": True},
        {"And": []},
        {"And": {}},
        {"Not": []},
        {"Variable": "$.a", "And": [{"Variable": "$.a", "IsNull": True}]},
        {"And": [{"Variable": "$.a", "IsNull": True, "Next": "X"}]},
    ],
)
def test_a_wrong_rule_is_refused(rule):
    with pytest.raises(QueryRefusedError):
        compile_rule(rule)
