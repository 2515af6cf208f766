"""Python as a query language: expressions of `aliquot.expressions` in `{% %}`.

An expression that fails gives the name of Python's exception, such as ZeroDivisionError, so that a workflow written in
Python catches in the graph the errors that it catches as plain Python.
"""

import ast
from functools import lru_cache

from aliquot.expressions import Budget, EvaluationError, ExpressionRefusedError, compile_expression
from aliquot.expressions.budget import MAX_STEPS
from aliquot.workflow.errors import QUERY_FAILED, QueryRefusedError, StateError
from aliquot.workflow.query.jsonata_syntax import reads_context
from aliquot.workflow.query.scope import Scope, TooLongError
from aliquot.workflow.query.templates import Query
from aliquot.workflow.values import Value

STATES = "states"
BOUNDS = ("TimeoutError", "MemoryError")  # too many steps, too large a value
EXPRESSION_STEPS = 8  # of an expression take as long as a step of the other languages


@lru_cache(maxsize=1024)
def compile_python(source: str) -> Query:
    """Compile an expression, or refuse it."""
    try:
        expression = compile_expression(source)
    except ExpressionRefusedError as error:
        raise QueryRefusedError(f"{source.strip()!r}: {error}") from error

    with_context = reads_context(source)

    def run(scope: Scope) -> Value:
        names = {**scope.variables, STATES: scope.record() if with_context else scope.states}
        left = scope.work.left
        budget = Budget(MAX_STEPS if left is None else left * EXPRESSION_STEPS)
        try:
            value = expression.evaluate(names, budget)
        except EvaluationError as error:
            if error.kind == "TimeoutError" and left is not None:
                raise TooLongError from error
            name = QUERY_FAILED if error.kind in BOUNDS else error.kind
            raise StateError(name, f"The expression '{source.strip()}' failed: {error}") from error
        if left is not None:
            scope.work.left = budget.steps // EXPRESSION_STEPS
        return value

    parts = [
        node.attr
        for node in ast.walk(ast.parse(source.strip(), mode="eval"))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == STATES
    ]
    variables = tuple(name for name in expression.names if name != STATES)
    return Query(run, variables, parts=tuple(dict.fromkeys(parts)))
