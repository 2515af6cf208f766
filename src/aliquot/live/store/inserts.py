"""Insert and update many rows with few statements, of a few fixed sizes that stay compiled.

Unused places hold rows of NULLs. `OR IGNORE` skips them, and no row has a key that is NULL.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

SIZES = (1, 4, 16, 64, 256, 1024)


@cache
def _insert(target: str, rows: int) -> str:
    columns = target.count(",") + 1
    row = "(" + ", ".join("?" * columns) + ")"
    return f"INSERT OR IGNORE INTO {target} VALUES " + ", ".join([row] * rows)  # noqa: S608 - our own names


def insert(connection: sqlite3.Connection, target: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, except those whose key exists already."""
    columns = target.count(",") + 1
    for begin in range(0, len(rows), SIZES[-1]):
        size, values = _padded(rows[begin : begin + SIZES[-1]], columns)
        connection.execute(_insert(target, size), values)


@cache
def _update(statement: str, columns: int, rows: int) -> str:
    row = "(" + ", ".join("?" * columns) + ")"
    return statement.format(", ".join([row] * rows))


def update(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Update rows. The braces in the statement stand for the rows of a VALUES clause."""
    for begin in range(0, len(rows), SIZES[-1]):
        chunk = rows[begin : begin + SIZES[-1]]
        size, values = _padded(chunk, len(chunk[0]))
        connection.execute(_update(statement, len(chunk[0]), size), values)


def _padded(rows: Sequence[tuple[Any, ...]], columns: int) -> tuple[int, list[Any]]:
    """Return the number of rows in the statement, and the values of all of them."""
    size = next(size for size in SIZES if size >= len(rows))
    values: list[Any] = []
    for row in rows:
        values += row
    values += [None] * (columns * (size - len(rows)))
    return size, values
