"""Load a Python function from its code: a source text, a zip, or a module of `aliquot.App` functions."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Callable, NoReturn  # noqa: UP035 - Python 3.9 on

from . import archive

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

MISSING_CODE = "Missing main/no code to execute."
BROKEN = "The action failed to generate or locate a binary. See logs for details."
FAILED = "Cannot start action. Check logs for details."

# Not `__main__`: the sandbox must not run the part of a module that is meant for scripts.
MODULE = "__aliquot_main__"
_HERE = Path(__file__).resolve().parent
_SDK = _HERE.parent / "sdk"
_MAX_REASON_LENGTH = 1000
_ends: list[Callable[[], object]] = []  # code for the end of the sandbox


class InitError(Exception):
    """The function cannot be loaded. The text is the answer, and the details are on stderr."""


def load(description: dict[str, Any]) -> Callable[..., Any]:
    """Load the code and return the function to call. Raises `InitError`, or an exception that ends a process."""
    if description.get("module"):
        return _load_module(description)
    code, main = description["code"], description["main"]
    if not main or not code.strip():
        raise InitError(MISSING_CODE)
    if description["binary"]:
        code, path = _unpack(code, description.get("directory") or "action")
    else:
        path = description["name"].rpartition("/")[2] + ".py"
    module = _execute(code, path, description.get("file") or path)
    found = defined = getattr(module, main, None)
    if description["sdk"]:
        found = getattr(found, "raw", found)
        _set_up(main, defined)
    if not callable(found):
        _print_error(f"The code defines no function {main!r}.")
        raise InitError(FAILED)
    names = frozenset(description["init_names"])
    return _without_arguments(found, names) if names else found


def _load_module(description: dict[str, Any]) -> Callable[..., Any]:
    """Let a module of the platform that the zygote has imported load what this sandbox serves."""
    try:
        found: Callable[..., Any] = importlib.import_module(description["module"]).load(description)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a library of a device may raise anything
        raise InitError(str(error) or type(error).__name__) from None
    return found


def hand_over(sock: socket.socket, description: dict[str, Any]) -> NoReturn:
    """Let a module of the platform that the zygote has imported serve the process from now on."""
    importlib.import_module(description["module"]).serve(sock, description)
    os._exit(0)


def _without_arguments(function: Callable[..., Any], names: frozenset[str]) -> Callable[..., Any]:
    """Return the function without the arguments of these names: they are variables of the environment."""

    def left(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in names}

    def stripped(argument: Any) -> Any:  # noqa: ANN401 - the function's own
        if isinstance(argument, list):  # a batch
            return [left(each) if isinstance(each, dict) else each for each in argument]
        return left(argument) if isinstance(argument, dict) else argument

    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's own
        return function(*map(stripped, args), **left(kwargs))

    call.__wrapped__ = function  # type: ignore[attr-defined] # for the names of its parameters
    return call


def _set_up(name: str, defined: Any) -> None:  # noqa: ANN401 - a function or a class of the SDK
    """Run the set-up of a class of the SDK. Its end is noted for `tear_down`."""
    set_up, end = getattr(defined, "set_up", None), getattr(defined, "tear_down", None)
    if not callable(set_up):
        return
    try:
        set_up()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
        print_exception(error)
        reason = traceback.format_exception_only(type(error), error)[-1].strip()
        raise InitError(f"The set-up of {name} failed: {reason[:_MAX_REASON_LENGTH]}") from None
    if callable(end):
        _ends.append(end)


def tear_down() -> None:
    """Run the code that classes have for the end of their sandbox. The server has closed the pipes of its output."""
    if _ends:
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (1, 2):
            os.dup2(nothing, fd)
    for end in _ends:
        with contextlib.suppress(Exception):  # there is nobody to tell
            end()


def _execute(code: str, path: str, shown: str) -> ModuleType:
    """Run the code as the main module. Tracebacks name it `shown`."""
    module = ModuleType(MODULE)
    module.__file__ = path
    # Pickles and multiprocessing look up the module's contents under either name.
    sys.modules[MODULE] = sys.modules["__main__"] = module
    # With this, tracebacks show the source, which is in no file.
    linecache.cache[shown] = (len(code), None, code.splitlines(keepends=True), shown)
    try:
        compiled = compile(code, shown, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        _print_error("".join(traceback.format_exception_only(type(error), error)))
        raise InitError(BROKEN) from None
    try:
        exec(compiled, module.__dict__)  # noqa: S102 - running code is the purpose of the sandbox
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
        print_exception(error)
        raise InitError(FAILED) from None
    return module


def _unpack(code: str, name: str) -> tuple[str, str]:
    """Unpack a zip, and make its directory the working directory and importable. Return `__main__.py` and its path."""
    directory = Path(os.environ["TMPDIR"], name)
    try:
        directory.mkdir()
        archive.unpack(code, directory)
    except (archive.ArchiveError, OSError) as error:
        _print_error(f"The code cannot be unpacked: {error}.")
        raise InitError(BROKEN) from None
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    path = directory / "__main__.py"
    if not path.is_file():
        _print_error("Zip file does not include __main__.py at its top.")
        raise InitError(BROKEN)
    if (directory / "virtualenv").is_dir():
        _activate(directory / "virtualenv" / "bin" / "activate_this.py")
    try:
        return importlib.util.decode_source(path.read_bytes()), str(path)
    except (SyntaxError, UnicodeDecodeError) as error:
        _print_error(f"__main__.py cannot be read: {error}.")
        raise InitError(BROKEN) from None


def _activate(path: Path) -> None:
    if not path.is_file():
        _print_error("Invalid virtualenv. Zip file does not include 'virtualenv/bin/activate_this.py'.")
        raise InitError(BROKEN)
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        exec(code, {"__file__": str(path), "__name__": "activate_this"})  # noqa: S102 - its contract
    except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
        print_exception(error)
        raise InitError(FAILED) from None


def print_exception(error: BaseException) -> str:
    """Print an exception to stderr, with a traceback that leaves out our own frames. Return the text."""
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).parent in (_HERE, _SDK):
        trace = trace.tb_next
    text = _format(error, trace)
    _print_error(text)
    return text


def _format(error: BaseException, trace: TracebackType | None) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001 - an exception whose own text fails
        return f"{type(error).__name__}\n"


def _print_error(text: str) -> None:
    with contextlib.suppress(Exception):  # the function may have closed or replaced it
        sys.stderr.write(text if text.endswith("\n") else text + "\n")
