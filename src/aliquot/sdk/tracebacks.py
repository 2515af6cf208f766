"""Tracebacks for callers: they lead to the caller's line and to the function's own file, not through the SDK."""

import os
from typing import NoReturn, TypeVar

from aliquot.sdk.errors import SdkError
from aliquot.sdk.portable import registered

E = TypeVar("E", bound=BaseException)


def deliver(error: BaseException) -> NoReturn:
    """Raise what a function on the platform has raised. `without_own_frames` knows it by this frame."""
    raise error


def without_own_frames(error: E) -> E:
    """Return an error that is meant for the caller without the SDK's frames. Other errors keep theirs, as bugs do."""
    if isinstance(error, SdkError) or _is_delivered(error):
        cause: BaseException | None = error
        while cause is not None and (cause is error or type(cause).__module__.startswith("aliquot.sdk")):
            cause.__traceback__ = None
            cause = cause.__cause__
    return error


def _is_delivered(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is deliver.__code__


def name_local_file(error: BaseException, app: str) -> None:
    """Name the app's file in the platform's traceback as it is called here, so that editors find the line."""
    path = registered.get(app, {}).get("__file__")
    notes = getattr(error, "__notes__", None)
    if not path or not isinstance(notes, list):
        return
    there, here = f'File "{os.path.basename(path)}", line ', f'File "{path}", line '
    notes[:] = [note.replace(there, here) if isinstance(note, str) else note for note in notes]
