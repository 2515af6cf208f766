"""What a run comes to, as the server hears it: a status, the result as JSON, and the pickled result where there is one.

The judgements are OpenWhisk's (`docs/reference/sandboxes.md`).
"""

from __future__ import annotations

import json
import pickle
from typing import Any, NamedTuple

from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS

NO_DICTIONARY = "The action did not return a dictionary or array."
NOT_JSON = "The action's result is not valid JSON: {}."
OUT_OF_MEMORY = "The action exhausted its memory and was aborted."
TOO_LONG = "The action produced a response that exceeded the allowed length: {} > {} bytes."

# Faster than json.loads and json.dumps, which look for the encoding of bytes and make an encoder each time.
decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Answer(NamedTuple):
    status: int
    result: bytes  # JSON
    pickled: bytes = b""
    parcel: int = 0  # with the pickle's large buffers


def to_json(value: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    # Lone surrogates are no Unicode text; a question mark is better than no answer.
    return _encode(value).encode("utf-8", "replace")


def failed(text: str) -> Answer:
    """The function did not answer as it must; the sandbox is spent."""
    return Answer(DEVELOPER_ERROR, error(text))


def error(text: str) -> bytes:
    return to_json({"error": text})


def settled(result: Any) -> tuple[int, Any]:  # noqa: ANN401 - the function's
    """The status that it means, and what of it counts."""
    if isinstance(result, dict):
        return (APPLICATION_ERROR, {"error": result["error"]}) if "error" in result else (SUCCESS, result)
    return (SUCCESS, result) if isinstance(result, (list, tuple)) else (DEVELOPER_ERROR, None)


def judged(result: Any, most_bytes: int) -> Answer:  # noqa: ANN401 - the function's
    status, result = settled(result)
    if status == DEVELOPER_ERROR:
        return failed(NO_DICTIONARY)
    try:
        body = to_json(result)
    except MemoryError as trouble:
        return ended(trouble)
    except Exception as trouble:  # noqa: BLE001 - a value of the function's own type may raise anything
        return failed(NOT_JSON.format(trouble))
    if len(body) > most_bytes:
        return too_long(len(body), most_bytes, body)
    return Answer(status, body)


def merged(defaults: dict[str, Any], value: Any) -> Any:  # noqa: ANN401 - what a function returned
    """A function's own parameters beneath what it is given; what is given stays what it is."""
    return {**defaults, **value} if defaults and isinstance(value, dict) else value


def too_long(size: int, most_bytes: int, body: bytes = b"") -> Answer:
    told = TOO_LONG.format(size, most_bytes)
    if body:
        told += " The truncated response was: " + body[: min(1024, most_bytes)].decode("utf-8", "replace")
    return Answer(APPLICATION_ERROR, error(told))


def ended(trouble: BaseException) -> Answer:
    if isinstance(trouble, SystemExit):
        raise trouble
    return failed(OUT_OF_MEMORY)


def text(trouble: BaseException) -> str:
    try:
        return str(trouble)
    except Exception:  # noqa: BLE001 - an exception whose own text fails
        return type(trouble).__name__


def raised(trouble: BaseException, trace: str) -> Answer:
    """For a caller that takes pickles."""
    told = error(f"{type(trouble).__name__}: {text(trouble)}")
    return Answer(APPLICATION_ERROR, told, _pickled(trouble, trace))


def _pickled(trouble: BaseException, trace: str) -> bytes:
    """The exception for the caller, with the traceback as its note; something like it when it does not travel."""
    try:
        trouble.__notes__ = [*getattr(trouble, "__notes__", ()), trace]  # what 3.11's add_note does
        pickled = pickle.dumps(trouble, protocol=5)
        pickle.loads(pickled)  # noqa: S301 - many exceptions pickle and then fail to come back
    except Exception:  # noqa: BLE001 - a reducer of the function's own may raise anything
        stand_in = RuntimeError(f"{type(trouble).__name__}: {text(trouble)}")
        stand_in.__notes__ = [trace]
        return pickle.dumps(stand_in, protocol=5)
    return pickled
