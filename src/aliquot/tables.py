"""Tables for the terminal that cut neither numbers nor names. One that is too wide is shown in parts."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

MIN_TEXT_WIDTH = 24  # that a column of longer texts keeps, where its lines are wrapped


class FittedTable(Table):
    """A table that is shown in several parts if it is wider than the terminal.

    Each part repeats the first columns, which name the row. A table of two columns is never divided.
    """

    def __init__(self, *headers: Column | str, names: int = 1, **options: Any) -> None:  # noqa: ANN401 - options of rich
        super().__init__(*headers, **options)
        self._names = names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needs = [self._need(console, options, number) for number in range(len(self.columns))]
        parts = list(self._divide([need.width for need in needs], options.max_width))
        if len(parts) == 1 and not any(need.whole for need in needs):
            yield from super().__rich_console__(console, options)
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

    def _divide(self, needs: Sequence[int], width: int) -> Iterator[list[int]]:
        """Yield the columns of each part, so that no part is wider than the terminal if that is possible."""
        around = 3 if self.box else 2  # between two columns
        edges = 4 if self.box and self.show_edge else 0
        names = list(range(min(self._names, len(needs))))
        used = start = edges + sum(needs[name] + around for name in names) - (around if names else 0)
        part: list[int] = []
        for number in range(len(names), len(needs)):
            if part and used + needs[number] + around > width:
                yield [*names, *part]
                part, used = [], start
            part.append(number)
            used += needs[number] + around
        yield [*names, *part]

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
