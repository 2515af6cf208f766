"""Intrinsic functions of the States Language, `States.Format` and its like. A failed one raises `IntrinsicError`."""

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import NamedTuple

from aliquot.workflow.chance import Chance, fraction
from aliquot.workflow.values import (
    MAX_INTEGER,
    Value,
    bounded,
    equal,
    is_number,
    is_whole,
    kind_of,
    parse_json,
    to_text,
)

MAX_RANGE_ITEMS = 1000
MAX_ENCODED_CHARACTERS = 10_000
ALGORITHMS = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
PLACE = re.compile(r"\\(.)|(\{\})", re.DOTALL)


class IntrinsicError(Exception):
    """An intrinsic function cannot work on its arguments."""


class Intrinsic(NamedTuple):
    """A function, and how many arguments it takes."""

    run: Callable[..., Value]
    min_arguments: int
    max_arguments: int | None


def _require(held: bool, expected: str, value: Value) -> None:
    if not held:
        raise IntrinsicError(f"expected {expected}, not {kind_of(value)}")


def _array(value: Value) -> list[Value]:
    _require(isinstance(value, list), "an array", value)
    return value  # type: ignore[no-any-return]


def _text(value: Value) -> str:
    _require(isinstance(value, str), "a string", value)
    return value  # type: ignore[no-any-return]


def _integer(value: Value) -> int:
    """Return a number rounded half up, as Java's Math.round does."""
    _require(is_number(value), "a number", value)
    return int(value) if is_whole(value) else math.floor(value + 0.5)


def _format_value(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={_format_value(part)}' for key, part in value.items())}}}"
    return to_text(value)


def _format(chance: Chance, template: Value, *values: Value) -> str:
    places = PLACE.findall(_text(template))
    if sum(bool(place) for _, place in places) != len(values):
        raise IntrinsicError(
            f"the template has {sum(bool(p) for _, p in places)} {{}}, but {len(values)} values follow"
        )
    bounded(list(values))
    rest = iter(values)
    return PLACE.sub(lambda found: found[1] or _format_value(next(rest)), template)


def _string_to_json(chance: Chance, text: Value) -> Value:
    if not _text(text):
        return None
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise IntrinsicError(f"the string is no JSON: {error}") from error


def _add(chance: Chance, left: Value, right: Value) -> int:
    total = _integer(left) + _integer(right)
    if abs(total) > MAX_INTEGER:
        raise IntrinsicError(f"the sum is beyond {MAX_INTEGER}")
    return total


def _partition(chance: Chance, array: Value, size: Value) -> list[list[Value]]:
    length = _integer(size)
    if length <= 0:
        raise IntrinsicError(f"the size of a chunk must be positive, not {length}")
    return [array[start : start + length] for start in range(0, len(_array(array)), length)]


def _range(chance: Chance, first: Value, last: Value, step: Value) -> list[int]:
    start, stop, stride = _integer(first), _integer(last), _integer(step)
    if stride == 0:
        raise IntrinsicError("the step must not be 0")
    found = range(start, stop + (1 if stride > 0 else -1), stride)
    if len(found) > MAX_RANGE_ITEMS:
        raise IntrinsicError(f"an array has at most {MAX_RANGE_ITEMS} items, not {len(found)}")
    return list(found)


def _item(chance: Chance, array: Value, index: Value) -> Value:
    position = _integer(index)
    if not 0 <= position < len(_array(array)):
        raise IntrinsicError(f"the array has {len(array)} items, and none at {position}")
    return array[position]


def _unique(chance: Chance, array: Value) -> list[Value]:
    found: dict[str, Value] = {}
    for value in _array(array):
        found.setdefault(json.dumps(_whole_numbers(value), sort_keys=True), value)
    return list(found.values())


def _whole_numbers(value: Value) -> Value:
    """Return a value with integers for floats without a fraction, so that equal values have equal texts."""
    if isinstance(value, list):
        return [_whole_numbers(part) for part in value]
    if isinstance(value, dict):
        return {key: _whole_numbers(part) for key, part in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _short(text: Value) -> str:
    if len(_text(text)) > MAX_ENCODED_CHARACTERS:
        raise IntrinsicError(f"the string has more than {MAX_ENCODED_CHARACTERS} characters")
    return str(text)


def _encode(chance: Chance, text: Value) -> str:
    return base64.b64encode(_short(text).encode("utf-8", "surrogatepass")).decode()


def _decode(chance: Chance, text: Value) -> str:
    try:
        return base64.b64decode(_short(text), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise IntrinsicError(f"the string is no base64 of text: {error}") from error


def hash_text(value: Value, algorithm: Value) -> str:
    """Return the hash of text, or of the JSON of another value."""
    if algorithm not in ALGORITHMS:
        raise IntrinsicError(f"the algorithm is one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
    text = _short(value if isinstance(value, str) else to_text(value))
    return hashlib.new(ALGORITHMS[algorithm], text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _merge(chance: Chance, first: Value, second: Value, deep: Value) -> dict[str, Value]:
    _require(isinstance(first, dict), "an object", first)
    _require(isinstance(second, dict), "an object", second)
    if deep is not False:
        raise IntrinsicError("only shallow merging is supported: the third argument must be false")
    return {**first, **second}


def _random(chance: Chance, start: Value, end: Value, seed: Value = None) -> int:
    low, high = _integer(start), _integer(end)
    if low >= high:
        raise IntrinsicError(f"the end {high} must be larger than the start {low}")
    drawn = chance.fraction() if seed is None else fraction(f"MathRandom {_integer(seed)}")
    return low + math.floor(drawn * (high - low))


def _split(chance: Chance, text: Value, marks: Value) -> list[str]:
    pattern = "|".join(re.escape(mark) for mark in _text(marks))
    parts = re.split(pattern, _text(text)) if pattern else [text]
    return [part for part in parts if part]


INTRINSICS: dict[str, Intrinsic] = {
    "Array": Intrinsic(lambda chance, *values: bounded(list(values)), 0, None),
    "ArrayContains": Intrinsic(lambda chance, array, item: any(equal(item, part) for part in _array(array)), 2, 2),
    "ArrayGetItem": Intrinsic(_item, 2, 2),
    "ArrayLength": Intrinsic(lambda chance, array: len(_array(array)), 1, 1),
    "ArrayPartition": Intrinsic(_partition, 2, 2),
    "ArrayRange": Intrinsic(_range, 3, 3),
    "ArrayUnique": Intrinsic(_unique, 1, 1),
    "Base64Decode": Intrinsic(_decode, 1, 1),
    "Base64Encode": Intrinsic(_encode, 1, 1),
    "Format": Intrinsic(_format, 1, None),
    "Hash": Intrinsic(lambda chance, value, algorithm: hash_text(value, algorithm), 2, 2),
    "JsonMerge": Intrinsic(_merge, 3, 3),
    "JsonToString": Intrinsic(lambda chance, value: to_text(bounded(value)), 1, 1),
    "MathAdd": Intrinsic(_add, 2, 2),
    "MathRandom": Intrinsic(_random, 2, 3),
    "StringSplit": Intrinsic(_split, 2, 2),
    "StringToJson": Intrinsic(_string_to_json, 1, 1),
    "UUID": Intrinsic(lambda chance: chance.uuid(), 0, 0),
}
