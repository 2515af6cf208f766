"""Compile the source of an expression into closures.

Every closure takes an `Evaluation`: the names, and the budget. The table `NODES` has a compiler for each kind of node
that is allowed, and all other nodes are refused.
"""

import ast
from collections.abc import Mapping

from aliquot.expressions import loops, nodes
from aliquot.expressions.budget import (
    MAX_SOURCE_CHARACTERS,
    Budget,
    EvaluationError,
    ExpressionRefusedError,
    Value,
    check_numbers,
)
from aliquot.expressions.closures import Closure, Compiler, Evaluation, NodeCompiler

FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)

NODES: dict[type, NodeCompiler] = {
    ast.Attribute: nodes.attribute,
    ast.BinOp: nodes.binary,
    ast.BoolOp: nodes.boolean,
    ast.Call: loops.call_of,
    ast.Compare: nodes.compare,
    ast.Constant: nodes.constant,
    ast.Dict: nodes.new_dict,
    ast.DictComp: loops.dict_comprehension,
    ast.FormattedValue: nodes.formatted,
    ast.GeneratorExp: loops.comprehension,
    ast.IfExp: nodes.conditional,
    ast.JoinedStr: nodes.text,
    ast.List: nodes.new_list,
    ast.ListComp: loops.comprehension,
    ast.Name: nodes.name,
    ast.Subscript: nodes.subscript,
    ast.Tuple: nodes.new_list,
    ast.UnaryOp: nodes.unary,
}


class Expression:
    """A compiled expression with the free names that it reads."""

    __slots__ = ("_run", "names", "source")

    def __init__(self, source: str, run: Closure, names: tuple[str, ...]) -> None:
        self.source = source
        self.names = names
        self._run = run

    def evaluate(self, names: Mapping[str, Value], budget: Budget | None = None) -> Value:
        """Return the value of the expression."""
        evaluation = Evaluation(names, budget or Budget())
        try:
            value = self._run(evaluation)
            check_numbers(evaluation.budget.built(value))
        except EvaluationError:
            raise
        except FAILURES as error:
            raise EvaluationError(f"{type(error).__name__}: {error}", type(error).__name__) from error
        return value


def compile_expression(source: str) -> Expression:
    """Compile an expression, or refuse it with line and reason."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise ExpressionRefusedError(f"an expression has at most {MAX_SOURCE_CHARACTERS} characters")
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionRefusedError(f"this is no Python expression: {error}") from error
    return compile_tree(tree.body, source)


def compile_tree(tree: ast.expr, source: str) -> Expression:
    """Compile an expression that has been parsed already."""
    compiler = Compiler(NODES)
    try:
        run = compiler.node(tree)
    except RecursionError as error:
        raise ExpressionRefusedError("the expression is nested too deep") from error
    return Expression(source, run, tuple(compiler.free))
