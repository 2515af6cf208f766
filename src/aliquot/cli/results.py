"""Format results for stdout: tables and lines for people, JSON for programs."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from aliquot.cli.console import output
from aliquot.tables import FittedTable


class PlainTable(FittedTable):
    """A table whose texts are shown as they are. `[learn]` in a cell is text, not markup."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:  # noqa: ANN401 - options of rich
        super().add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def print_json(value: object, *, compact: bool = False) -> None:
    """Print JSON without colours and wrapping, so that it can be piped."""
    print(json.dumps(value, indent=None if compact else 2, ensure_ascii=False), flush=compact)  # noqa: T201 - results go to stdout


def table(title: str, *columns: str, names: int | Sequence[int] = 1) -> PlainTable:
    """Make a table. Columns whose name begins with `>` are aligned to the right.

    The first `names` columns name the row, or those with the numbers in `names`.
    """
    made = PlainTable(
        names=names,
        title=Text(title) if title else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    for column in columns:
        made.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return made


def show(made: Table) -> None:
    output.print(made)


def size(amount: float | None) -> str:
    if amount is None:
        return ""
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:  # noqa: PLR2004 - the step between units
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def count(number: int, thing: str, things: str = "") -> str:
    """Return a number with the name of what it counts, such as `1 file` and `2 files`."""
    return f"{number} {thing}" if number == 1 else f"{number} {things or f'{thing}s'}"


def seconds(amount: float | None) -> str:
    if amount is None:
        return ""
    if amount < 1:
        return f"{amount * 1000:.3g} ms"
    return f"{amount:.3g} s"


def percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.0f}%"


def clock(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def text(value: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    """Format a value for a cell of a table."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
