"""Inspect the syntax tree of a JSONata expression: what it reads, what is refused, and whether it may take long.

An expression may take long if it has a regular expression, a range, a function, an assignment or a call of anything
but a function that is known to be cheap. Such an expression is evaluated in a process beside the event loop.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from aliquot.workflow.errors import QueryRefusedError

ADDED = frozenset({"partition", "range", "hash", "random", "uuid", "parse", "now", "millis"})
CHEAP = frozenset(
    {
        *("abs", "append", "average", "boolean", "ceil", "contains", "count", "exists", "floor", "hash", "join"),
        *("keys", "length", "lookup", "lowercase", "max", "merge", "millis", "min", "not", "now", "number", "parse"),
        *("random", "reverse", "round", "string", "substring", "substringAfter", "substringBefore", "sum", "trim"),
        *("type", "uppercase", "uuid"),
    }
)
SLOW_TYPES = frozenset({"regex", "lambda", "partial", "transform", "bind", "apply", "descendant", "sort"})
STATES = "states"
INNER = ("stages", "predicate", "group", "pattern", "update", "delete", "terms", "rhs_terms")
PLAIN_ARGUMENTS = frozenset({"path", "variable", "string", "number", "value"})
SKIPPED = ("_outer_instance", "ancestor", "slot", "seeking_parent", "signature", "errors", "next_function")
MAX_NODES = 20_000

OTHER_PARTS = re.compile(r"\bstates\.(input|result|errorOutput)\b")

Symbol = Any


class Inspection(NamedTuple):
    """The variables that an expression reads, whether it may take long, and the fields of $states that it reads."""

    variables: tuple[str, ...]
    slow: bool
    parts: tuple[str, ...]


def inspect(tree: Symbol, functions: frozenset[str]) -> Inspection:
    """Inspect an expression, or refuse it."""
    inspector = _Inspector(functions | ADDED)
    inspector.visit(tree, inside=False)
    names = tuple(name for name in inspector.read if name not in inspector.bound and name not in inspector.functions)
    return Inspection(names, inspector.slow, tuple(inspector.parts))


def _symbols(value: object) -> Iterator[Symbol]:
    """Yield the symbols in an attribute, which may be in lists of lists."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from _symbols(part)
    elif hasattr(value, "lbp") or hasattr(value, "keep_array"):
        yield value


def reads_context(source: str) -> bool:
    """Return whether an expression may read the context object, which takes some time to make."""
    return STATES in OTHER_PARTS.sub("", source)


class _Inspector:
    """The findings so far."""

    def __init__(self, functions: frozenset[str]) -> None:
        self.functions = functions
        self.read: dict[str, None] = {}
        self.bound: set[str] = set()
        self.parts: dict[str, None] = {}
        self.slow = False
        self._nodes = 0

    def visit(self, symbol: Symbol, *, inside: bool) -> None:
        """Visit a symbol. Inside a path or a filter names are relative to a value, elsewhere they are refused."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise QueryRefusedError(f"the expression has more than {MAX_NODES} parts")
        kind = symbol.type
        self.slow = self.slow or kind in SLOW_TYPES or getattr(symbol, "value", None) == ".."
        if kind == "variable":
            self._variable(str(symbol.value), inside=inside)
        elif kind in {"name", "wildcard", "descendant", "parent"} and not inside:
            raise QueryRefusedError(f"{symbol.value!r} refers to no value; write $states.input.{symbol.value}")
        elif kind == "function":
            self._call(symbol)
        elif kind in {"lambda", "bind"}:
            self._names_bound(symbol)
        if kind == "path":
            self._path(symbol, inside=inside)
            return
        for name, value in list(vars(symbol).items()):
            if name not in SKIPPED:
                for part in _symbols(value):
                    self.visit(part, inside=inside or name in INNER)

    def _path(self, symbol: Symbol, *, inside: bool) -> None:
        steps = symbol.steps
        first = steps[0]
        if first.type == "variable" and first.value == STATES and len(steps) > 1 and steps[1].type == "name":
            self.parts[str(steps[1].value)] = None
        for position, step in enumerate(steps):
            self.visit(step, inside=inside or position > 0)
        for part in _symbols(getattr(symbol, "group", None)):
            self.visit(part, inside=True)

    def _variable(self, name: str, *, inside: bool) -> None:
        if name == "$":
            raise QueryRefusedError("$$ refers to no value; write $states.context or $states.input")
        if name == "":
            if not inside:
                raise QueryRefusedError("$ refers to no value at the top level; write $states.input")
        elif name != STATES:
            self.read[name] = None

    def _call(self, symbol: Symbol) -> None:
        procedure = symbol.procedure
        name = str(procedure.value) if procedure.type == "variable" else ""
        if name == "eval":
            raise QueryRefusedError("$eval is not allowed; write $parse to read JSON")
        plain = all(argument.type in PLAIN_ARGUMENTS for argument in symbol.arguments or ())
        if name not in CHEAP or (name == "string" and not plain):
            self.slow = True

    def _names_bound(self, symbol: Symbol) -> None:
        names = [symbol.lhs] if symbol.type == "bind" else symbol.arguments or []
        self.bound.update(str(name.value) for name in names)
