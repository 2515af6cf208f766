"""A value as a record shows it: JSON, whole when it is small and JSON can hold it, otherwise with parts told of.

A value that stays inside a sandbox need not be JSON, and is not to be copied for its record, however large it is.
"""

from __future__ import annotations

from typing import Any

from . import answers

_BUDGET = 1024  # values and, in all, this many times 16 characters
_CHARACTERS = 16
_DEPTH = 16
_LONGEST_KEY = 256
_BITS = 256  # of a whole number
_MOST_BYTES = 128 * 1024  # it goes in one packet


def shown(value: Any) -> bytes:  # noqa: ANN401 - a function's
    try:
        body = answers.to_json(_part(value, [_BUDGET], _DEPTH))
    except Exception:  # noqa: BLE001 - a value of the function's own type may raise anything
        body = b""
    return body if 0 < len(body) <= _MOST_BYTES else answers.to_json(_told(value))


def _part(value: Any, left: list[int], depth: int) -> Any:  # noqa: ANN401 - likewise
    if value is None or value is True or value is False or type(value) is float:
        return value
    if type(value) is int:
        return value if value.bit_length() <= _BITS else _told(value)
    if type(value) is str:
        left[0] -= len(value) // _CHARACTERS
        return value if left[0] >= 0 else _told(value)
    if depth == 0 or type(value) not in (list, tuple, dict) or len(value) > left[0]:
        return _told(value)
    if type(value) is dict:
        if not all(type(key) is str and len(key) <= _LONGEST_KEY for key in value):
            return _told(value)
        left[0] -= len(value) + sum(map(len, value)) // _CHARACTERS
        if left[0] < 0:
            return _told(value)
        return {key: _part(item, left, depth - 1) for key, item in value.items()}
    left[0] -= len(value)
    return [_part(item, left, depth - 1) for item in value]


def _told(value: Any) -> dict[str, Any]:  # noqa: ANN401 - likewise
    """Its type and, where that is plain, its size."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
    told: dict[str, Any] = {"type": name[:_LONGEST_KEY]}
    size = getattr(value, "nbytes", None)
    if type(size) is int:
        told["bytes"] = size
    elif kind in (bytes, bytearray):
        told["bytes"] = len(value)
    elif kind in (str, list, tuple, dict, set, frozenset):
        told["length"] = len(value)
    return told
