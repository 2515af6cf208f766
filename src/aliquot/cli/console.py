"""Where the command line writes: results to stdout, progress and errors to stderr."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from aliquot.core.errors import InputError


class ErrorConsole(Console):
    """A console on stderr that can take text from outside."""

    @staticmethod
    def escape(text: str) -> str:
        return escape(text)


# Piped output has no terminal to be as wide as; a table should still not be cut.
output = Console(width=None if Console().is_terminal else 160)
errors = ErrorConsole(stderr=True)


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on stderr, gone when the work is done; silent where nobody watches."""
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
    """A line as it is: names of files may look like markup."""
    output.print(text, highlight=False, markup=False, soft_wrap=True)


def check_writable(path: Path | None, option: str) -> None:
    """Say at once, not after the long run, that a result has nowhere to go."""
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
    """No file may be given twice: one would destroy the other."""
    seen: dict[Path, str] = {}
    for option, path in paths.items():
        if path is None:
            continue
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise InputError(f"{option}: {path} is also given as {other}; it takes a file of its own")
