"""Readers for input files, plain or gzip: CSV, JSON lines and JSON lists. Errors name file, line and field."""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from aliquot.core.clock import DECIMALS
from aliquot.core.errors import InputError

NUMBER_PATTERN = re.compile(r"\s*\+?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
MAX_NUMBER = 1e12  # beyond it, sums of floats lose too much precision
TIMESTAMPS = "a date and time without a zone, as in 2023-11-16 18:15:46.68"
UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError)

T = TypeVar("T", bound=Struct)


class CsvRow:
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

    def number(self, column: str, takes: str, *, above: float | None = None, max_value: float | None = None) -> float:
        """Parse a number above `above` and at most `max_value`. `takes` describes accepted values for the error."""
        value = parse_number(self.values[column])
        if value is None or (above is not None and value <= above) or (max_value is not None and value > max_value):
            raise self.error(f"{column} is '{self.values[column]}'; it takes {takes}")
        return value

    def optional(
        self, column: str, takes: str, *, above: float | None = None, max_value: float | None = None
    ) -> float | None:
        """Parse a number like `number`, or return None if the column is missing or empty."""
        if not self.values.get(column, "").strip():
            return None
        return self.number(column, takes, above=above, max_value=max_value)

    def timestamp(self, column: str) -> float:
        """Parse a date and time without a zone as seconds since 1970. Only differences of such times are used."""
        text = self.text(column)
        moment = parse_timestamp(text)
        if moment is None:
            raise self.error(f"{column} is '{text}'; it takes {TIMESTAMPS}")
        return moment


def parse_timestamp(text: str) -> float | None:
    """Parse a date and time without a zone as seconds since 1970. Return None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is not None else moment.replace(tzinfo=UTC).timestamp()


def parse_number(text: str) -> float | None:
    """Parse a number from 0 to `MAX_NUMBER` and round it to the time grid. Return None for any other text.

    Whole numbers become ints, so that sums of them stay exact. A positive number below the grid is not rounded.
    """
    if NUMBER_PATTERN.fullmatch(text) is None:
        return None
    exact = float(text)
    if exact > MAX_NUMBER:
        return None
    value = round(exact, DECIMALS) or exact
    return int(value) if value == int(value) else value


def read_rows(
    path: Path, required: Sequence[str], optional: Sequence[str] | None, prefixes: Sequence[str] = ()
) -> Iterator[CsvRow]:
    """Stream the rows of a CSV file with a header.

    Column names may also begin with one of `prefixes`. If `optional` is None, any other columns are accepted.
    """
    return _rows(path, lambda header: _check_header(path, header, required, optional, prefixes))


def read_plain_rows(path: Path, columns: Sequence[str]) -> Iterator[CsvRow]:
    """Stream the rows of a CSV file without a header, whose columns are these."""
    return _rows(path, None, columns)


def _rows(
    path: Path, check_header: Callable[[list[str] | None], list[str]] | None, names: Sequence[str] = ()
) -> Iterator[CsvRow]:
    line = 0
    try:
        reader = csv.reader(_text_lines(path), strict=True)
        if check_header is not None:
            header = next(reader, None)
            line = 1
            names = check_header(header)
        for values in reader:
            line = reader.line_num
            if not values:
                continue
            if len(values) != len(names):
                raise InputError(f"{path}:{line}: {len(values)} fields; it takes {len(names)}: {','.join(names)}")
            yield CsvRow(str(path), line, dict(zip(names, values, strict=True)))
    except (*UNREADABLE, csv.Error) as error:
        raise _read_error(path, line + 1, error) from error


def _check_header(
    path: Path,
    header: list[str] | None,
    required: Sequence[str],
    optional: Sequence[str] | None,
    prefixes: Sequence[str],
) -> list[str]:
    others = "others" if optional is None else ",".join([*optional, *(p + "KIND" for p in prefixes)])
    takes = f"it takes {','.join(required)}" + (f", and may have {others}" if others else "")
    if header is None:
        raise InputError(f"{path}:1: is empty, where a header is expected: {takes}")
    names = [name.strip() for name in header]
    for name in required:
        if name not in names:
            raise InputError(f"{path}:1: the column {name} is missing from the header '{','.join(names)}'; {takes}")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"{path}:1: the column {name} is listed twice")
        own_kind = any(name.startswith(prefix) and len(name) > len(prefix) for prefix in prefixes)
        if optional is not None and name not in required and name not in optional and not own_kind:
            raise InputError(f"{path}:1: the column '{name}' is not known; {takes}")
    return names


def read_json_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Stream a file with one JSON object per line as objects of `kind`. Empty lines are skipped."""
    decoder = Decoder(kind)
    line = 0
    try:
        for line, text in enumerate(_text_lines(path), start=1):
            if text.strip():
                yield _decode(decoder, text, f"{path}:{line}")
    except UNREADABLE as error:
        raise _read_error(path, line + 1, error) from error


def read_json_list(path: Path, kind: type[T]) -> list[T]:
    """Read a file with one JSON list of objects of `kind`."""
    try:
        content = "".join(_text_lines(path))
    except UNREADABLE as error:
        raise _read_error(path, 1, error) from error
    try:
        return Decoder(list[kind]).decode(content)  # type: ignore[valid-type]
    except DecodeError as error:
        fields = ", ".join(kind.__struct_fields__)
        raise InputError(f"{path}: {error}; it takes a JSON list of objects with {fields}") from error


def _decode(decoder: Decoder[T], text: str, location: str) -> T:
    try:
        return decoder.decode(text)
    except DecodeError as error:
        fields = ", ".join(decoder.type.__struct_fields__)
        raise InputError(f"{location}: {error}; it takes a JSON object with {fields}") from error


def find_file(path: Path) -> Path:
    """Return the path, or that of the unpacked file where only this is there, or of the packed one."""
    other = path.with_suffix("") if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
    return other if not path.exists() and other.exists() else path


def _text_lines(path: Path) -> Iterator[str]:
    """Stream the lines of a text file. Gzip is detected by the file's first bytes or its suffix."""
    path = find_file(path)
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


def _read_error(path: Path, line: int, error: Exception) -> InputError:
    return InputError(f"{path}:{line}: cannot be read from here on: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return f"the gzip file is damaged or cut off ({error})"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text ({error.reason})"
    return str(error)
