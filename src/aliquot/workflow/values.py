"""JSON values: their text, their kinds, their equality and their size."""

import json
import math
from typing import Any, TypeAlias

from aliquot.expressions.budget import measure
from aliquot.workflow.errors import DATA_LIMIT, StateError

Value: TypeAlias = Any  # a JSON value

MAX_VALUE_SIZE = 1_000_000  # in characters, approximately: what a state may build
MAX_VARIABLES_SIZE = 16 * MAX_VALUE_SIZE
MAX_SHOWN_CHARACTERS = 1000
MAX_INTEGER = 2**63 - 1
MAX_DIGITS = 20


def to_text(value: Value) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def parse_json(text: str) -> Value:
    """Return the value of JSON text. Numbers that JSON cannot hold are refused by a ValueError."""
    return json.loads(text, parse_constant=_refuse_number, parse_float=_finite, parse_int=_bounded_integer)


def _refuse_number(text: str) -> float:
    raise ValueError(f"{text[:40]} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _bounded_integer(text: str) -> int | float:
    return _finite(text) if len(text) > MAX_DIGITS or abs(int(text)) > MAX_INTEGER else int(text)


def shown(value: Value) -> str:
    """Return a value as JSON for a message, shortened."""
    text = to_text(value) if measure(value, MAX_VALUE_SIZE) <= MAX_VALUE_SIZE else "a very large value"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def equal(left: Value, right: Value) -> bool:
    """Compare two values as JSON: 1 equals 1.0, and true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(part, right[key]) for key, part in left.items())
    return bool(left == right)


def kind_of(value: Value) -> str:
    """Return the JSON name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "number"


def bounded(value: Value, limit: int = MAX_VALUE_SIZE) -> Value:
    """Return a value that a state has built, if it is not too large."""
    if type(value) in {list, dict, str} and measure(value, limit) > limit:
        raise StateError(DATA_LIMIT, f"The state built a value of more than {limit} characters of JSON")
    return value
