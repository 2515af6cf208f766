"""Opening text files, plain or gzip, and saying why one cannot be read."""

import gzip
import zlib
from pathlib import Path
from typing import IO

from aliquot.core.errors import InputError

UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError)


def open_text(path: Path) -> IO[str]:
    """Gzip is told by its first bytes, whatever the file is called."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    if not path.is_file():
        raise InputError(f"{path}: is not a regular file; it is read more than once")
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    if zipped or path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def cannot_be_read(path: Path, line: int, error: Exception) -> InputError:
    return InputError(f"{path}:{line}: cannot be read from here on: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return f"the gzip file is damaged or cut off ({error})"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text ({error.reason})"
    return str(error)
