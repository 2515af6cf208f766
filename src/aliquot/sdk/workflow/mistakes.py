"""Mistakes in the source of a workflow: all of them are collected, and told at once."""

import ast
from typing import NamedTuple

from aliquot.sdk.errors import UsageError

_MAX_SHOWN = 60


class Mistake(NamedTuple):
    """A construct that cannot be translated: its line, its source, the reason, and what to write instead."""

    line: int
    construct: str
    reason: str


class RefusedConstruct(Exception):  # noqa: N818 - never leaves this package
    """Ends the translation of one statement. The others are still read."""

    def __init__(self, node: ast.AST, reason: str) -> None:
        super().__init__(reason)
        self.mistake = Mistake(getattr(node, "lineno", 0), shown(node), reason)


class WorkflowRefusedError(UsageError):
    """The source of a workflow has mistakes. `mistakes` lists all of them."""

    def __init__(self, workflow: str, file: str, mistakes: list[Mistake]) -> None:
        self.mistakes = sorted(set(mistakes))
        lines = [f"{file}:{one.line}: `{one.construct}`: {one.reason}" for one in self.mistakes]
        super().__init__("\n".join([f"the workflow {workflow} cannot be translated:", *lines]))


def shown(node: ast.AST, length: int = _MAX_SHOWN) -> str:
    """Return the first line of a node's source, shortened."""
    try:
        text = ast.unparse(node)
    except ValueError:  # Python 3.11 cannot write every f-string
        text = type(node).__name__
    lines = text.strip().splitlines() or [""]
    return lines[0] if len(lines[0]) <= length else lines[0][: length - 1] + "…"
