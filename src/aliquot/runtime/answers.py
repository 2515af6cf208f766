"""The outcome of a run as the server gets it: a status, the result as JSON, and the pickled result if there is one.

Which result is which error follows OpenWhisk (`docs/reference/sandboxes.md`).
"""

from __future__ import annotations

import json
import pickle
from typing import Any, Callable, NamedTuple  # noqa: UP035 - Python 3.9 on

from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS

NO_DICTIONARY = "The action did not return a dictionary or array."
NOT_JSON = "The action's result is not valid JSON: {}."
OUT_OF_MEMORY = "The action exhausted its memory and was aborted."
TOO_LONG = "The action produced a response that exceeded the allowed length: {} > {} bytes."

# Faster than json.loads and json.dumps, which detect the encoding of bytes and make an encoder for each call.
_decode = json.JSONDecoder().decode
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_scan = json.scanner.make_scanner(json.JSONDecoder())  # type: ignore[attr-defined] # the C part of a decoder


def decode(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Decode JSON. A text without blanks around it takes half the time."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return _decode(text)
    return value if end == len(text) else _decode(text)


def _make_encode() -> Callable[[Any], str]:
    """Return a function that encodes JSON with one encoder for all calls."""
    make = json.encoder.c_make_encoder  # type: ignore[attr-defined]
    if make is None:  # this Python has no C part
        return _encoder.encode
    inside: dict[int, Any] = {}  # the containers that are being encoded, by which a cycle is found
    separators = _encoder.key_separator, _encoder.item_separator
    text_of = json.encoder.encode_basestring
    write = make(inside, _encoder.default, text_of, None, *separators, False, False, False)

    def encode(value: Any) -> str:  # noqa: ANN401 - whatever JSON holds
        try:
            return "".join(write(value, 0))
        except BaseException:
            inside.clear()
            raise

    return encode


_encode = _make_encode()


class RunAnswer(NamedTuple):
    """The outcome of a run: a status, and the result as JSON and perhaps as a pickle."""

    status: int
    result: bytes  # JSON
    pickled: bytes = b""
    buffer: int = 0  # number of the shared buffer that has the pickle's large buffers, or 0


def to_json(value: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    # Lone surrogates are not Unicode text. A question mark is better than no answer.
    return _encode(value).encode("utf-8", "replace")


def error_json(text: str) -> bytes:
    return to_json({"error": text})


def developer_error(text: str) -> RunAnswer:
    """Answer that the function broke the contract. The server ends the sandbox then."""
    return RunAnswer(DEVELOPER_ERROR, error_json(text))


def split_status(result: Any) -> tuple[int, Any]:  # noqa: ANN401 - the function's
    """Return the status that a result means, and the part of the result that counts."""
    if isinstance(result, dict):
        return (APPLICATION_ERROR, {"error": result["error"]}) if "error" in result else (SUCCESS, result)
    return (SUCCESS, result) if isinstance(result, (list, tuple)) else (DEVELOPER_ERROR, None)


def from_result(result: Any, max_bytes: int) -> RunAnswer:  # noqa: ANN401 - the function's
    """Answer with a result as JSON, or with the error that it means."""
    status, result = split_status(result)
    if status == DEVELOPER_ERROR:
        return developer_error(NO_DICTIONARY)
    try:
        body = to_json(result)
    except MemoryError as error:
        return from_exit(error)
    except Exception as error:  # noqa: BLE001 - a value of the function's own type may raise anything
        return developer_error(NOT_JSON.format(error))
    if len(body) > max_bytes:
        return too_long(len(body), max_bytes, body)
    return RunAnswer(status, body)


def merge(defaults: dict[str, Any], value: Any) -> Any:  # noqa: ANN401 - what a function returned
    """Add a function's default parameters to the value that it is given. Values that are given win."""
    return {**defaults, **value} if defaults and isinstance(value, dict) else value


def too_long(size: int, max_bytes: int, body: bytes = b"") -> RunAnswer:
    text = TOO_LONG.format(size, max_bytes)
    if body:
        text += " The truncated response was: " + body[: min(1024, max_bytes)].decode("utf-8", "replace")
    return RunAnswer(APPLICATION_ERROR, error_json(text))


def from_exit(error: BaseException) -> RunAnswer:
    """Raise `SystemExit` again, because it ends the process. Answer anything else as exhausted memory."""
    if isinstance(error, SystemExit):
        raise error
    return developer_error(OUT_OF_MEMORY)


def error_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text fails
        return type(error).__name__


def from_exception(error: BaseException, trace: str) -> RunAnswer:
    """Answer a caller that takes pickles with the exception itself."""
    text = error_json(f"{type(error).__name__}: {error_text(error)}")
    return RunAnswer(APPLICATION_ERROR, text, _pickle_exception(error, trace))


def _pickle_exception(error: BaseException, trace: str) -> bytes:
    """Pickle the exception with the traceback as its note, or a `RuntimeError` if it cannot be pickled and loaded."""
    try:
        error.__notes__ = [*getattr(error, "__notes__", ()), trace]  # what 3.11's add_note does
        pickled = pickle.dumps(error, protocol=5)
        pickle.loads(pickled)  # noqa: S301 - many exceptions can be pickled, but not loaded
    except Exception:  # noqa: BLE001 - a reducer of the function's own may raise anything
        stand_in = RuntimeError(f"{type(error).__name__}: {error_text(error)}")
        stand_in.__notes__ = [trace]
        return pickle.dumps(stand_in, protocol=5)
    return pickled
