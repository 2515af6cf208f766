"""Tables for the terminal that cut neither numbers nor names. One that is too wide is shown in parts, or turned."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

MIN_TEXT_WIDTH = 24  # that a column of longer texts keeps, where its lines are wrapped
MAX_PARTS = 3  # of a table; one that needs more is turned


class FittedTable(Table):
    """A table that is shown in several parts if it is wider than the terminal.

    Each part repeats the columns that name the row: the first `names` columns, or those with the numbers in `names`. A
    table of two columns is never divided. One that would need many parts, or whose names leave no room for another
    column, is turned: each row becomes lines with a column's name and its value.
    """

    def __init__(
        self,
        *headers: Column | str,
        names: int | Sequence[int] = 1,
        **options: Any,  # noqa: ANN401 - options of rich
    ) -> None:
        super().__init__(*headers, **options)
        self._names = list(range(names)) if isinstance(names, int) else list(names)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needs = [self._need(console, options, number) for number in range(len(self.columns))]
        widths = [need.width for need in needs]
        if self._width(widths) <= options.max_width and not any(need.whole for need in needs):
            yield from super().__rich_console__(console, options)
            return
        parts = list(self._divide(widths, options.max_width))
        too_wide = any(self._width([widths[number] for number in part]) > options.max_width for part in parts)
        if len(parts) > MAX_PARTS or (len(parts) > 1 and too_wide):
            yield from Table.__rich_console__(self._turned(), console, options)
            return
        for number, part in enumerate(parts):
            made = self._part(part, needs, options.max_width, first=not number)
            yield from Table.__rich_console__(made, console, options)

    def _need(self, console: Console, options: ConsoleOptions, number: int) -> "_ColumnNeed":
        """Return the width that a column takes without cutting a word, and whether its cells are single words."""
        column = self.columns[number]
        wide = options.update_width(10_000)
        cells: list[RenderableType] = [column.header, *column.cells] if self.show_header else list(column.cells)
        sizes = [Measurement.get(console, wide, cell) for cell in cells] or [Measurement(1, 1)]
        longest_word, longest = max(size.minimum for size in sizes), max(size.maximum for size in sizes)
        whole = column.no_wrap or longest_word == longest
        return _ColumnNeed(longest if whole else max(longest_word, min(longest, MIN_TEXT_WIDTH)), whole)

    def _width(self, widths: Sequence[int]) -> int:
        """Return the width of a table with columns of these widths."""
        around = 3 if self.box else 2  # between two columns
        return sum(widths) + around * max(len(widths) - 1, 0) + (4 if self.box and self.show_edge else 0)

    def _divide(self, widths: Sequence[int], width: int) -> Iterator[list[int]]:
        """Yield the columns of each part, so that no part is wider than the terminal if that is possible."""
        if self._width(widths) <= width:
            yield list(range(len(widths)))
            return
        names = [name for name in self._names if name < len(widths)]
        part: list[int] = []
        for number in range(len(widths)):
            if number in names:
                continue
            if part and self._width([widths[each] for each in (*names, *part, number)]) > width:
                yield [*names, *part]
                part = []
            part.append(number)
        yield [*names, *part]

    def _turned(self) -> Table:
        """Return a table of two columns: the name of a column of this one, and its value in one row after another."""
        made = Table(
            title=self.title, title_justify=self.title_justify, box=self.box, pad_edge=self.pad_edge, show_header=False
        )
        made.add_column(style=self.header_style, no_wrap=True)
        made.add_column(overflow="fold")
        for index, row in enumerate(self.rows):
            if index and not self.box:
                made.add_row()
            for number, column in enumerate(self.columns):
                last = bool(self.box) and number == len(self.columns) - 1
                made.add_row(column.header, list(column.cells)[index], end_section=last, style=row.style)
        return made

    def _part(self, columns: Sequence[int], needs: "Sequence[_ColumnNeed]", width: int, *, first: bool) -> Table:
        made = Table(
            title=self.title if first else None, title_justify=self.title_justify, box=self.box,
            pad_edge=self.pad_edge, show_header=self.show_header, header_style=self.header_style,
        )  # fmt: skip
        for number in columns:
            column = self.columns[number]
            fits = needs[number].whole and needs[number].width <= width // 2
            made.add_column(column.header, justify=column.justify, no_wrap=fits, overflow="fold", style=column.style)
        cells = [list(self.columns[number].cells) for number in columns]
        for index, row in enumerate(self.rows):
            made.add_row(*(column[index] for column in cells), end_section=row.end_section, style=row.style)
        return made


class _ColumnNeed(NamedTuple):
    width: int
    whole: bool  # its cells are single words, which must not be broken
