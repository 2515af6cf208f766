"""Summarise a value for an activation record: complete if it is small JSON, otherwise with large parts described.

A value that stays inside a sandbox need not be JSON, and it is not copied for the record, however large it is.
"""

from __future__ import annotations

from typing import Any

from . import answers

_MAX_VALUES = 1024  # and in total that many times _CHARACTERS_PER_VALUE characters
_CHARACTERS_PER_VALUE = 16
_MAX_DEPTH = 16
_MAX_KEY_LENGTH = 256
_MAX_INT_BITS = 256
_MAX_BYTES = 128 * 1024  # it is sent in one packet


def summarize(value: Any) -> bytes:  # noqa: ANN401 - a function's
    """Return the summary as JSON."""
    try:
        body = answers.to_json(_summarize(value, [_MAX_VALUES], _MAX_DEPTH))
    except Exception:  # noqa: BLE001 - a value of the function's own type may raise anything
        body = b""
    return body if 0 < len(body) <= _MAX_BYTES else answers.to_json(describe(value))


def _summarize(value: Any, remaining: list[int], depth: int) -> Any:  # noqa: ANN401 - likewise
    """Return the value with large parts described. `remaining` holds how many more values may be copied."""
    if value is None or value is True or value is False or type(value) is float:
        return value
    if type(value) is int:
        return value if value.bit_length() <= _MAX_INT_BITS else describe(value)
    if type(value) is str:
        remaining[0] -= len(value) // _CHARACTERS_PER_VALUE
        return value if remaining[0] >= 0 else describe(value)
    if depth == 0 or type(value) not in (list, tuple, dict) or len(value) > remaining[0]:
        return describe(value)
    if type(value) is dict:
        if not all(type(key) is str and len(key) <= _MAX_KEY_LENGTH for key in value):
            return describe(value)
        remaining[0] -= len(value) + sum(map(len, value)) // _CHARACTERS_PER_VALUE
        if remaining[0] < 0:
            return describe(value)
        return {key: _summarize(item, remaining, depth - 1) for key, item in value.items()}
    remaining[0] -= len(value)
    return [_summarize(item, remaining, depth - 1) for item in value]


def describe(value: Any) -> dict[str, Any]:  # noqa: ANN401 - likewise
    """Return the type of a value and, for common types, its size."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
    described: dict[str, Any] = {"type": name[:_MAX_KEY_LENGTH]}
    size = getattr(value, "nbytes", None)
    if type(size) is int:
        described["bytes"] = size
    elif kind in (bytes, bytearray):
        described["bytes"] = len(value)
    elif kind in (str, list, tuple, dict, set, frozenset):
        described["length"] = len(value)
    return described
