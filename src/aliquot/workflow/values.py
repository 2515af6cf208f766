"""JSON values: their text, their kinds, their equality and their size; and references to objects beside them."""

import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from aliquot.expressions.budget import measure
from aliquot.workflow.errors import DATA_LIMIT, StateError

Value: TypeAlias = Any  # a JSON value, in which parts may be an `ObjectRef`

MAX_VALUE_SIZE = 1_000_000  # in characters, approximately: what a state may build
MAX_VARIABLES_SIZE = 16 * MAX_VALUE_SIZE
MAX_SHOWN_CHARACTERS = 1000
MAX_INTEGER = 2**63 - 1
MAX_DIGITS = 20


OBJECT_CODE = 1  # of a reference as an extension of msgpack
HANDED_ON = "is a Python object; a workflow can only hand it on, and a function can look into it"


class ObjectRef:
    """A reference to an object that JSON cannot hold, or that is too large to be looked into.

    The shell keeps the object. No JSON value is equal to a reference, so data cannot be taken for one.
    """

    __slots__ = ("id", "kind", "size")

    def __init__(self, object_id: str, kind: str, size: int) -> None:
        """`kind` is the name of the object's class, and `size` is in bytes."""
        self.id = object_id
        self.kind = kind
        self.size = size

    def __repr__(self) -> str:
        return f"<{self.kind} of {self.size} bytes>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and other.id == self.id

    __hash__ = None  # type: ignore[assignment] # it is no key of a dictionary

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} {HANDED_ON}")

    def __str__(self) -> str:
        raise TypeError(f"{self!r} {HANDED_ON}")

    def __format__(self, spec: str) -> str:
        raise TypeError(f"{self!r} {HANDED_ON}")

    def describe(self) -> dict[str, Value]:
        """Return the reference as people see it in histories and records."""
        return {"type": self.kind, "bytes": self.size}


def encode_object(value: object) -> msgspec.msgpack.Ext:
    """Encode a reference for msgpack. This is the `enc_hook` of encoders."""
    if not isinstance(value, ObjectRef):
        raise NotImplementedError(f"{type(value).__name__} is no value of a workflow")
    return msgspec.msgpack.Ext(OBJECT_CODE, msgspec.msgpack.encode((value.id, value.kind, value.size)))


def decode_object(code: int, data: memoryview) -> ObjectRef:
    """Decode a reference from msgpack. This is the `ext_hook` of decoders."""
    if code != OBJECT_CODE:
        raise ValueError(f"the extension {code} is unknown")
    return ObjectRef(*msgspec.msgpack.decode(data, type=tuple[str, str, int]))


def replace_objects(value: Value, replace: Callable[[ObjectRef, tuple[str | int, ...]], Value]) -> Value:
    """Return a copy of a value in which `replace` has replaced each reference, given its path."""
    return _replace(value, replace, ())


def _replace(
    value: Value, replace: Callable[[ObjectRef, tuple[str | int, ...]], Value], path: tuple[str | int, ...]
) -> Value:
    if type(value) is dict:
        return {key: _replace(part, replace, (*path, key)) for key, part in value.items()}
    if type(value) is list:
        return [_replace(part, replace, (*path, number)) for number, part in enumerate(value)]
    return replace(value, path) if isinstance(value, ObjectRef) else value


def described(value: Value) -> Value:
    """Return a value with descriptions in the place of references."""
    return replace_objects(value, lambda one, _: one.describe())


def describe_object(value: object) -> Value:
    """Describe a reference for an encoder of JSON, as its `enc_hook` or `default`."""
    if isinstance(value, ObjectRef):
        return value.describe()
    raise TypeError(f"{type(value).__name__} is no value of a workflow")


def to_text(value: Value) -> str:
    """Return a value as compact JSON. Raises `TypeError` for a reference to an object."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_refuse_object)


def _refuse_object(value: object) -> Value:
    raise TypeError(f"{value!r} {HANDED_ON}")


def described_text(value: Value) -> str:
    """Return a value as compact JSON, with descriptions in the place of references."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=describe_object)


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
    text = described_text(value) if measure(value, MAX_VALUE_SIZE) <= MAX_VALUE_SIZE else "a very large value"
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
    return "a Python object" if isinstance(value, ObjectRef) else "number"


def bounded(value: Value, limit: int = MAX_VALUE_SIZE) -> Value:
    """Return a value that a state has built, if it is not too large."""
    if type(value) in {list, dict, str} and measure(value, limit) > limit:
        raise StateError(DATA_LIMIT, f"The state built a value of more than {limit} characters of JSON")
    return value
