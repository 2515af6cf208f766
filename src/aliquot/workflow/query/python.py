"""Python as a query language: expressions of `aliquot.expressions` in `{% %}`."""

import ast
from functools import lru_cache

from aliquot.expressions import EvaluationError, ExpressionRefusedError, compile_expression
from aliquot.workflow.errors import QUERY_FAILED, QueryRefusedError, StateError
from aliquot.workflow.query.scope import Scope, TooLongError
from aliquot.workflow.query.templates import Query
from aliquot.workflow.values import Value

STATES = "states"


@lru_cache(maxsize=1024)
def compile_python(source: str) -> Query:
    """Compile an expression, or refuse it."""
    try:
        expression = compile_expression(source)
    except ExpressionRefusedError as error:
        raise QueryRefusedError(f"{source.strip()!r}: {error}") from error

    def run(scope: Scope) -> Value:
        names = {**scope.variables, STATES: scope.record()}
        try:
            return expression.evaluate(names, scope.max_steps)
        except EvaluationError as error:
            if error.kind == "TimeoutError" and scope.max_steps is not None:
                raise TooLongError from error
            raise StateError(QUERY_FAILED, f"The expression '{source.strip()}' failed: {error}") from error

    parts = [
        node.attr
        for node in ast.walk(ast.parse(source.strip(), mode="eval"))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == STATES
    ]
    variables = tuple(name for name in expression.names if name != STATES)
    return Query(run, variables, parts=tuple(dict.fromkeys(parts)))
