"""The parts that all compilers of nodes use: the evaluation, the compilation, and refusals with line and reason."""

import ast
from collections.abc import Callable, Mapping

from aliquot.expressions.budget import MAX_NESTING, Budget, EvaluationError, ExpressionRefusedError, Value


class Evaluation:
    """The names and the budget of one evaluation."""

    __slots__ = ("budget", "names")

    def __init__(self, names: Mapping[str, Value], budget: Budget) -> None:
        self.names = names
        self.budget = budget


Closure = Callable[[Evaluation], Value]


class Compiler:
    """The compilation of one source: the free names found, and the names that comprehensions bind."""

    def __init__(self, table: Mapping[type, "NodeCompiler"]) -> None:
        self._table = table
        self.free: dict[str, None] = {}
        self.bound: list[str] = []
        self.depth = 0

    def node(self, node: ast.expr) -> Closure:
        compiled = self._table.get(type(node))
        if compiled is None:
            raise refusal(node, f"{describe(node)} may not stand in a workflow")
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise refusal(node, f"the expression is nested more than {MAX_NESTING} deep")
        closure = compiled(self, node)
        self.depth -= 1
        return closure

    def nodes(self, nodes: list[ast.expr]) -> list[Closure]:
        return [self.node(node) for node in nodes]


def refusal(node: ast.AST, reason: str) -> ExpressionRefusedError:
    return ExpressionRefusedError(f"line {getattr(node, 'lineno', 1)}: {reason}")


def describe(node: ast.AST) -> str:
    """Return the source of a node, shortened, for messages."""
    text = ast.unparse(node)
    return f"{type(node).__name__} {text[:60]!r}"


def text_key(key: Value) -> str:
    """Return the key of a new dictionary, which must be text, because the values of a workflow are JSON."""
    if not isinstance(key, str):
        raise EvaluationError(f"the key {key!r} is no text", "TypeError")
    return key


NodeCompiler = Callable[[Compiler, Value], Closure]
