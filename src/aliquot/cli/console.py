"""The output of the command line: results to stdout, progress and errors to stderr."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from aliquot.core.errors import InputError


class ErrorConsole(Console):
    """A console on stderr that can escape text from other sources."""

    @staticmethod
    def escape(text: str) -> str:
        return escape(text)


# Piped output has no terminal width, unless COLUMNS gives one.
output = Console(width=None if Console().is_terminal or os.environ.get("COLUMNS") else 160)
errors = ErrorConsole(stderr=True)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show a progress bar on stderr, if it is a terminal. The bar disappears at the end."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        yield bar


def write_file(path: Path, content: bytes, option: str) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{option}: {path} cannot be written: {error.strerror}") from error


def say(text: str) -> None:
    """Print a line without markup, because file names may look like markup."""
    output.print(text, highlight=False, markup=False, soft_wrap=True)


def check_writable(path: Path | None, option: str) -> None:
    """Refuse a result file that cannot be written, before the long run."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"{option}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"{option}: {path} is a folder; it takes a file's name")
    new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise InputError(f"{option}: {path} cannot be written: {error.strerror}") from error


def check_distinct(paths: Mapping[str, Path | None]) -> None:
    """Refuse a file that is given twice, because one result would overwrite the other."""
    seen: dict[Path, str] = {}
    for option, path in paths.items():
        if path is None:
            continue
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise InputError(f"{option}: {path} is also given as {other}; it takes a file of its own")
