"""Turns a Python function's code into something to call: source, a zip, or a module of `aliquot.App` functions."""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Callable  # noqa: UP035 - Python 3.9 on

from . import archive

MISSING_CODE = "Missing main/no code to execute."
BROKEN = "The action failed to generate or locate a binary. See logs for details."
FAILED = "Cannot start action. Check logs for details."

# Not `__main__`: what a module does when it is run as a script is not for the sandbox.
MODULE = "__aliquot_main__"
_HERE = Path(__file__).resolve().parent


class InitError(Exception):
    """The function cannot be made ready; the text is the answer, the details are on stderr."""


def load(description: dict[str, Any]) -> Callable[..., Any]:
    """What to call. Raises `InitError`, or whatever ends a process."""
    code, main = description["code"], description["main"]
    if not main or not code.strip():
        raise InitError(MISSING_CODE)
    if description["binary"]:
        code, path = _unpacked(code, description.get("directory") or "action")
    else:
        path = description["name"].rpartition("/")[2] + ".py"
    module = _execute(code, path)
    found = getattr(module, main, None)
    if description["sdk"]:
        found = getattr(found, "raw", found)
    if not callable(found):
        _complain(f"The code defines no function {main!r}.")
        raise InitError(FAILED)
    return found  # type: ignore[no-any-return] # callable(): mypy forgets it


def _execute(code: str, path: str) -> ModuleType:
    module = ModuleType(MODULE)
    module.__file__ = path
    # Pickles and multiprocessing look for what the module defines under either name.
    sys.modules[MODULE] = sys.modules["__main__"] = module
    # Tracebacks show the source, though it is in no file.
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    try:
        compiled = compile(code, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        _complain("".join(traceback.format_exception_only(type(error), error)))
        raise InitError(BROKEN) from None
    try:
        exec(compiled, module.__dict__)  # noqa: S102 - what the sandbox is for
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
        print_exception(error)
        raise InitError(FAILED) from None
    return module


def _unpacked(code: str, name: str) -> tuple[str, str]:
    """The text and path of a zip's `__main__.py`; its directory becomes the working directory and importable."""
    directory = Path(os.environ["TMPDIR"], name)
    try:
        directory.mkdir()
        archive.unpack(code, directory)
    except (archive.ArchiveError, OSError) as error:
        _complain(f"The code cannot be unpacked: {error}.")
        raise InitError(BROKEN) from None
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    path = directory / "__main__.py"
    if not path.is_file():
        _complain("Zip file does not include __main__.py at its top.")
        raise InitError(BROKEN)
    if (directory / "virtualenv").is_dir():
        _activate(directory / "virtualenv" / "bin" / "activate_this.py")
    try:
        return importlib.util.decode_source(path.read_bytes()), str(path)
    except (SyntaxError, UnicodeDecodeError) as error:
        _complain(f"__main__.py cannot be read: {error}.")
        raise InitError(BROKEN) from None


def _activate(path: Path) -> None:
    if not path.is_file():
        _complain("Invalid virtualenv. Zip file does not include 'virtualenv/bin/activate_this.py'.")
        raise InitError(BROKEN)
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        exec(code, {"__file__": str(path), "__name__": "activate_this"})  # noqa: S102 - its contract
    except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
        print_exception(error)
        raise InitError(FAILED) from None


def print_exception(error: BaseException) -> str:
    """The traceback without our own frames, on stderr; returns it."""
    shown = error.__traceback__
    while shown is not None and Path(shown.tb_frame.f_code.co_filename).parent == _HERE:
        shown = shown.tb_next
    text = _formatted(error, shown)
    _complain(text)
    return text


def _formatted(error: BaseException, shown: TracebackType | None) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, shown))
    except Exception:  # noqa: BLE001 - an exception whose own text fails
        return f"{type(error).__name__}\n"


def _complain(text: str) -> None:
    with contextlib.suppress(Exception):  # the function may have closed or replaced it
        sys.stderr.write(text if text.endswith("\n") else text + "\n")
