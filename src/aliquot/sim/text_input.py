"""Opening text files, plain or gzip, and saying why one cannot be read."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from aliquot.core.errors import InputError

UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError)


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a file; gzip is told by its first bytes, whatever the file is called."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    if not path.is_file():
        raise InputError(f"{path}: is not a regular file; it is read more than once")
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b" or path.suffix == ".gz"
    with gzip.open(path, "rb") if zipped else path.open("rb") as lines:
        encoding = "utf-8-sig"
        for line in lines:
            yield str(line, encoding)
            encoding = "utf-8"


def cannot_be_read(path: Path, line: int, error: Exception) -> InputError:
    return InputError(f"{path}:{line}: cannot be read from here on: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return f"the gzip file is damaged or cut off ({error})"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text ({error.reason})"
    return str(error)
