"""The result of a benchmark: goals with the measured values, and the tables behind them."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.table import Table

from aliquot.tables import FittedTable

PERCENT = 100
MEASURED = "nothing about devices, all is measured on this machine"


class Goal(msgspec.Struct, frozen=True):
    """A measured value and the bound that it had to keep. `unit` says whether it is an upper or a lower bound."""

    name: str
    value: float | None
    goal: float
    unit: str
    met: bool


def at_most(name: str, value: float | None, goal: float, unit: str = "") -> Goal:
    """Make a goal with an upper bound. A value that was not measured does not meet it."""
    return Goal(name, value, goal, f"{unit}, at most".lstrip(", "), value is not None and value <= goal)


def at_least(name: str, value: float | None, goal: float, unit: str = "") -> Goal:
    """Make a goal with a lower bound. A value that was not measured does not meet it."""
    return Goal(name, value, goal, f"{unit}, at least".lstrip(", "), value is not None and value >= goal)


class ResultTable(msgspec.Struct, frozen=True):
    """A table with a title, column names and rows."""

    title: str
    columns: list[str]
    rows: list[list[str | float | None]]
    assumed: str = ""  # what it assumes instead of what the benchmark does


class BenchResult(msgspec.Struct, frozen=True):
    """All goals and tables of one run."""

    name: str
    quick: bool
    goals: list[Goal]
    tables: list[ResultTable]
    assumed: str  # about interference, slots and memory, in tables that assume nothing else

    def assumed_by(self, rows: ResultTable) -> str:
        """Return the line above a table that says what it assumes."""
        return f"assumed: {rows.assumed or self.assumed}"

    def to_markdown(self) -> str:
        """Format goals and tables for a page of the documents."""
        met = [
            [goal.name, goal.value, f"{cell(goal.goal)} {goal.unit}", "yes" if goal.met else "**no**"]
            for goal in self.goals
        ]
        goals = ResultTable("Goals", ["goal", "value", "wanted", "met"], met)
        size = " --quick" if self.quick else ""
        intro = f"*Written by `aliquot bench {self.name}{size} --markdown FILE`; do not edit.*\n"
        tables = [_markdown(rows, self.assumed_by(rows)) for rows in self.tables]
        return "\n".join([intro, _markdown(goals, f"assumed: {self.assumed}"), *tables])

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def cell(value: Any) -> str:  # noqa: ANN401 - any value of a table
    """Format a value for a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - large numbers need no decimals
    return str(value)


def _markdown(rows: ResultTable, assumed: str) -> str:
    lines = [f"**{rows.title}**, {assumed}\n", " | ".join(rows.columns), " | ".join("---" for _ in rows.columns)]
    lines += [" | ".join(cell(value) for value in row) for row in rows.rows]
    return "\n".join([lines[0], *(f"| {line} |" for line in lines[1:]), ""])


def rich_table(rows: ResultTable) -> Table:
    table = FittedTable(title=rows.title, title_justify="left")
    for number, column in enumerate(rows.columns):
        numeric = any(isinstance(row[number], int | float) for row in rows.rows)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows.rows:
        table.add_row(*(cell(value) for value in row))
    return table


def goals_table(goals: Sequence[Goal]) -> Table:
    table = FittedTable(title="Goals", title_justify="left")
    for column in ("goal", "value", "wanted", "met"):
        table.add_column(column, justify="left" if column == "goal" else "right")
    for goal in goals:
        met = "[green]yes[/]" if goal.met else "[bold red]no[/]"
        table.add_row(goal.name, cell(goal.value), f"{cell(goal.goal)} ({goal.unit})", met)
    return table
