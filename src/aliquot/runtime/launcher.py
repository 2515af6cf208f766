"""The inside of a Python sandbox: initialises one function, then runs it, one request at a time.

The judgements are OpenWhisk's (`docs/reference/sandboxes.md`). What the server gets is a status and bytes; after a
developer error the sandbox is spent and the server kills it.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from typing import Any, Callable, NoReturn  # noqa: UP035 - Python 3.9 on

from . import executed, frames, program, walls
from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

TWICE = "Cannot initialize the action more than once."
NOT_READY = "The action is not initialized."
NO_DICTIONARY = "The action did not return a dictionary or array."
NOT_JSON = "The action's result is not valid JSON: {}."
OUT_OF_MEMORY = "The action exhausted its memory and was aborted."
TOO_LONG = "The action produced a response that exceeded the allowed length: {} > {} bytes."

# Faster than json.loads and json.dumps, which look for the encoding of bytes and make an encoder each time.
_decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _json(value: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    # Lone surrogates are no Unicode text; a question mark is better than no answer.
    return _encode(value).encode("utf-8", "replace")


def _error(text: str) -> bytes:
    return _json({"error": text})


class Launcher:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._main: Callable[..., Any] | None = None
        self._sdk = False
        self._result_bytes = 0
        self._env = b"{}"  # of the last run
        self._variables: dict[str, str] = {}

    def serve(self) -> NoReturn:
        """Until the server hangs up, or the function ends the process."""
        sock = self._sock
        try:
            while True:
                what, first, second = frames.receive(sock)
                if what == frames.INIT:
                    status, result, pickled = self._init(json.loads(first))
                elif self._main is None:
                    status, result, pickled = DEVELOPER_ERROR, _error(NOT_READY), b""
                else:
                    if first != self._env:
                        self._set_environment(first)
                    if what == frames.RUN:
                        status, result, pickled = self._run(second)
                    else:
                        status, result, pickled = self._run_pickled(second)
                # Before the reply: when it arrives, all output is in the pipes.
                _finish_streams()
                frames.send(sock, status, result, pickled)
        except SystemExit as leaving:
            _flush()
            os._exit(leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None))
        except (EOFError, OSError):
            os._exit(0)  # the server has gone

    def _set_environment(self, env: bytes) -> None:
        variables, known = _decode(str(env, "utf-8")), self._variables
        for key, value in variables.items():
            if known.get(key) != value:
                os.environ[key] = value  # a microsecond each: most are those of the last run
        self._env, self._variables = env, variables

    # --- init -------------------------------------------------------------------------------------------

    def _init(self, description: dict[str, Any]) -> tuple[int, bytes, bytes]:
        if self._main is not None:
            return DEVELOPER_ERROR, _error(TWICE), b""
        self._result_bytes = description["result_bytes"]
        self._sdk = description["sdk"]
        if description["data_bytes"]:
            walls.limit_data(description["data_bytes"])
        if description["command"]:
            executed.execute(self._sock, description)
        os.environ.update(description["env"])
        try:
            self._main = program.load(description)
        except program.InitError as error:
            return DEVELOPER_ERROR, _error(str(error)), b""
        except MemoryError:
            return DEVELOPER_ERROR, _error(OUT_OF_MEMORY), b""
        return SUCCESS, b"{}", b""

    # --- runs -------------------------------------------------------------------------------------------

    def _run(self, payload: bytes | memoryview) -> tuple[int, bytes, bytes]:
        try:
            arguments = _decode(str(payload, "utf-8"))
            result = self._main(**arguments) if self._sdk else self._main(arguments)  # type: ignore[misc]
        except (SystemExit, MemoryError) as error:
            return _ended(error)
        except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
            program.print_exception(error)
            return APPLICATION_ERROR, _error(_text(error)), b""
        if self._sdk and not isinstance(result, dict):
            result = {"value": result}
        return self._judged(result)

    def _judged(self, result: Any) -> tuple[int, bytes, bytes]:  # noqa: ANN401 - the function's
        status = SUCCESS
        if isinstance(result, dict):
            if "error" in result:
                status, result = APPLICATION_ERROR, {"error": result["error"]}
        elif not isinstance(result, (list, tuple)):
            return DEVELOPER_ERROR, _error(NO_DICTIONARY), b""
        try:
            body = _json(result)
        except MemoryError as error:
            return _ended(error)
        except Exception as error:  # noqa: BLE001 - a value of the function's own type may raise anything
            return DEVELOPER_ERROR, _error(NOT_JSON.format(error)), b""
        if len(body) > self._result_bytes:
            return self._too_long(len(body), body)
        return status, body, b""

    def _too_long(self, size: int, body: bytes = b"") -> tuple[int, bytes, bytes]:
        text = TOO_LONG.format(size, self._result_bytes)
        if body:
            text += " The truncated response was: " + body[: min(1024, self._result_bytes)].decode("utf-8", "replace")
        return APPLICATION_ERROR, _error(text), b""

    def _run_pickled(self, payload: bytes | memoryview) -> tuple[int, bytes, bytes]:
        try:
            args, kwargs = pickle.loads(payload)  # noqa: S301 - from the function's own caller, in the function's sandbox
            pickled = pickle.dumps(self._main(*args, **kwargs), protocol=5)  # type: ignore[misc]
        except (SystemExit, MemoryError) as error:
            return _ended(error)
        except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
            trace = program.print_exception(error)
            return APPLICATION_ERROR, _error(f"{type(error).__name__}: {_text(error)}"), _pickled(error, trace)
        if len(pickled) > self._result_bytes:
            return self._too_long(len(pickled))
        return SUCCESS, b'{"pickled":true,"size":%d}' % len(pickled), pickled


def _ended(error: BaseException) -> tuple[int, bytes, bytes]:
    if isinstance(error, SystemExit):
        raise error
    return DEVELOPER_ERROR, _error(OUT_OF_MEMORY), b""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text fails
        return type(error).__name__


def _pickled(error: BaseException, trace: str) -> bytes:
    """The exception for the caller, with the traceback as its note; something like it when it does not travel."""
    try:
        error.__notes__ = [*getattr(error, "__notes__", ()), trace]  # what 3.11's add_note does
        pickled = pickle.dumps(error, protocol=5)
        pickle.loads(pickled)  # noqa: S301 - many exceptions pickle and then fail to come back
    except Exception:  # noqa: BLE001 - a reducer of the function's own may raise anything
        stand_in = RuntimeError(f"{type(error).__name__}: {_text(error)}")
        stand_in.__notes__ = [trace]
        return pickle.dumps(stand_in, protocol=5)
    return pickled


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - the warm path
            stream.flush()
        except Exception:  # noqa: BLE001, S110 - the function may have closed or replaced it
            pass


def _finish_streams() -> None:
    _flush()
    for fd in (1, 2):
        try:  # noqa: SIM105 - the warm path
            os.write(fd, frames.MARKER)
        except OSError:  # the function may have closed it
            pass
