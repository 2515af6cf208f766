"""The end of a command that fails: one clear line, or JSON for programs, and an exit code.

| code | meaning |
|---|---|
| 0 | done |
| 1 | the function failed, or a check did |
| 2 | the command line, a file or an option is wrong |
| 3 | no platform is known, or none answers |
| 4 | the platform refuses the key |
| 5 | there is no such thing |
| 6 | the platform refuses: it says why, or is busy |
| 7 | the platform failed, or the connection was lost |
| 130 | interrupted |
"""

import sys

from aliquot.cli.console import errors
from aliquot.core.errors import AliquotError
from aliquot.sdk.errors import (
    FunctionError,
    KeyRefusedError,
    NoServerError,
    NotFoundError,
    PlatformError,
    RefusedError,
    SdkError,
    UsageError,
)

# The order matters: a subclass comes before its base class.
_CODES: tuple[tuple[type[Exception], int, str], ...] = (
    (UsageError, 2, "usage"),
    (NoServerError, 3, "no_server"),
    (KeyRefusedError, 4, "key_refused"),
    (NotFoundError, 5, "not_found"),
    (RefusedError, 6, "refused"),
    (PlatformError, 7, "platform"),
    (FunctionError, 1, "function"),
    (SdkError, 7, "platform"),
    (AliquotError, 2, "input"),
    (OSError, 2, "system"),
)


class ErrorFormat:
    """The format in which errors are printed."""

    json = False


def report(error: Exception) -> int:
    """Print an error and return the exit code. An error that is not ours is a bug, and is raised again."""
    for kind, code, name in _CODES:
        if isinstance(error, kind):
            print_error(_text(error), code, name)
            return code
    raise error


def print_error(text: str, code: int, kind: str) -> None:
    if ErrorFormat.json:
        import json

        sys.stderr.write(json.dumps({"error": {"kind": kind, "message": text, "exit_code": code}}) + "\n")
        return
    errors.print(f"[bold red]error:[/] {errors.escape(text)}", soft_wrap=True, highlight=False)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, SdkError):  # for example a full disk
        where = f"{error.filename}: " if error.filename else ""
        return where + (error.strerror or str(error))
    return str(error)
