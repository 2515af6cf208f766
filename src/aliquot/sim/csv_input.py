"""Reading CSV files row by row, with errors that name file, line, field and what it takes."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import IO

from aliquot.core.clock import DECIMALS
from aliquot.core.errors import InputError


class Row:
    """One line of a CSV file."""

    __slots__ = ("file", "line", "values")

    def __init__(self, file: str, line: int, values: dict[str, str]) -> None:
        self.file = file
        self.line = line
        self.values = values

    def error(self, what: str) -> InputError:
        return InputError(f"{self.file}:{self.line}: {what}")

    def text(self, column: str) -> str:
        value = self.values[column].strip()
        if not value:
            raise self.error(f"{column} is empty; it takes a name")
        return value

    def number(self, column: str, takes: str, *, above: float | None = None, most: float | None = None) -> float:
        value = parse_number(self.values[column])
        if value is None or value < 0 or (above is not None and value <= above) or (most is not None and value > most):
            raise self.error(f"{column} is '{self.values[column]}'; it takes {takes}")
        return value

    def optional(
        self, column: str, takes: str, *, above: float | None = None, most: float | None = None
    ) -> float | None:
        """None where the column is missing or the field is empty."""
        if not self.values.get(column, "").strip():
            return None
        return self.number(column, takes, above=above, most=most)


def parse_number(text: str) -> float | None:
    """A finite number on the time grid; whole numbers as int, so that sums of them stay exact. None if it is none."""
    try:
        value = round(float(text), DECIMALS)
    except ValueError:
        return None
    if not isfinite(value):
        return None
    return int(value) if value == int(value) else value


def read_rows(
    path: Path, required: Sequence[str], optional: Sequence[str], prefixes: Sequence[str] = ()
) -> Iterator[Row]:
    """The rows of a file with a header, `.gz` or plain, as a stream. Columns may also begin with one of `prefixes`."""
    line = 0
    try:
        with _open(path) as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, None)
            line = 1
            names = _check_header(path, header, required, optional, prefixes)
            for values in reader:
                line = reader.line_num
                if not values:
                    continue
                if len(values) != len(names):
                    raise InputError(f"{path}:{line}: {len(values)} fields; it takes {len(names)}: {','.join(names)}")
                yield Row(str(path), line, dict(zip(names, values, strict=True)))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}:{line + 1}: cannot be read from here on: {_reason(error)}") from error


def _open(path: Path) -> IO[str]:
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    if not path.is_file():
        raise InputError(f"{path}: is not a regular file; it is read more than once")
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    if zipped or path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _check_header(
    path: Path, header: list[str] | None, required: Sequence[str], optional: Sequence[str], prefixes: Sequence[str]
) -> list[str]:
    takes = f"it takes {','.join(required)}, and may have {','.join([*optional, *(p + 'KIND' for p in prefixes)])}"
    if header is None:
        raise InputError(f"{path}:1: is empty, where a header is expected: {takes}")
    names = [name.strip() for name in header]
    for name in required:
        if name not in names:
            raise InputError(f"{path}:1: the column {name} is missing from the header '{','.join(names)}'; {takes}")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(f"{path}:1: the column {name} is there twice")
        own_kind = any(name.startswith(prefix) and len(name) > len(prefix) for prefix in prefixes)
        if name not in required and name not in optional and not own_kind:
            raise InputError(f"{path}:1: the column '{name}' is not known; {takes}")
    return names


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return f"the gzip file is damaged or cut off ({error})"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text ({error.reason})"
    return str(error)
