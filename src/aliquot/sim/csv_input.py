"""Reading CSV files row by row, with errors that name file, line, field and what it takes."""

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from aliquot.core.clock import DECIMALS
from aliquot.core.errors import InputError
from aliquot.sim.text_input import UNREADABLE, cannot_be_read, text_lines

NUMBER_PATTERN = re.compile(r"\s*\+?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
MAX_NUMBER = 1e12  # some thirty thousand years: beyond it sums of floats mean little


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

    def number(self, column: str, takes: str, *, above: float | None = None, most: float | None = None) -> float:
        value = parse_number(self.values[column])
        if value is None or (above is not None and value <= above) or (most is not None and value > most):
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
    """A number from 0 to `MAX_NUMBER`, on the time grid; None if it is none.

    Whole numbers are ints, so that sums of them stay exact. What the grid would make 0 is kept as it is.
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
    """The rows of a file with a header, `.gz` or plain, as a stream.

    Columns may also begin with one of `prefixes`; with None for `optional` any others may be there.
    """
    line = 0
    try:
        reader = csv.reader(text_lines(path), strict=True)
        header = next(reader, None)
        line = 1
        names = _check_header(path, header, required, optional, prefixes)
        for values in reader:
            line = reader.line_num
            if not values:
                continue
            if len(values) != len(names):
                raise InputError(f"{path}:{line}: {len(values)} fields; it takes {len(names)}: {','.join(names)}")
            yield CsvRow(str(path), line, dict(zip(names, values, strict=True)))
    except (*UNREADABLE, csv.Error) as error:
        raise cannot_be_read(path, line + 1, error) from error


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
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(f"{path}:1: the column {name} is there twice")
        own_kind = any(name.startswith(prefix) and len(name) > len(prefix) for prefix in prefixes)
        if optional is not None and name not in required and name not in optional and not own_kind:
            raise InputError(f"{path}:1: the column '{name}' is not known; {takes}")
    return names
