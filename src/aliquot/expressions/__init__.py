"""Expressions of Python that may stand in a workflow.

An expression is parsed with `ast` and compiled into closures. Nothing is passed to `eval`. The table of allowed nodes
is in `compiler.py`, the functions and methods are in `functions.py`, and `budget.py` bounds the work and the sizes.

Errors:

    ExpressionError
    ├── ExpressionRefusedError   the source is not an allowed expression; raised when it is compiled
    └── EvaluationError    the evaluation failed or reached a bound; raised when it runs
"""

from aliquot.expressions.budget import Budget, EvaluationError, ExpressionError, ExpressionRefusedError
from aliquot.expressions.compiler import Expression, compile_expression

__all__ = ["Budget", "EvaluationError", "Expression", "ExpressionError", "ExpressionRefusedError", "compile_expression"]
