"""Operators of an expression, with bounds on the values that they build."""

import ast
import operator
from collections.abc import Callable

from aliquot.expressions.budget import MAX_INTEGER_BITS, MAX_SIZE, Budget, EvaluationError, Value, measure

Binary = Callable[[Budget, Value, Value], Value]


def _whole(value: Value) -> bool:
    return isinstance(value, int)


def _number(value: Value) -> bool:
    return isinstance(value, int | float)


def _limit_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise EvaluationError(f"an integer has at most {MAX_INTEGER_BITS} bits", "OverflowError")


def _add(budget: Budget, left: Value, right: Value) -> Value:
    if _number(left) and _number(right):
        return left + right
    return budget.built(left + right)


def _multiply(budget: Budget, left: Value, right: Value) -> Value:
    if _whole(left) and _whole(right):
        _limit_bits(left.bit_length() + right.bit_length())
        return left * right
    if _number(left) and _number(right):
        return left * right
    value, times = (right, left) if _whole(left) else (left, right)
    if not _whole(times) or not isinstance(value, str | list):
        raise EvaluationError(f"cannot multiply {type(left).__name__} by {type(right).__name__}", "TypeError")
    if measure(value) * max(times, 0) > MAX_SIZE:
        raise EvaluationError(f"the repetition builds more than {MAX_SIZE} characters", "MemoryError")
    return budget.built(value * times)


def _power(budget: Budget, left: Value, right: Value) -> Value:
    if not _number(left) or not _number(right):
        raise EvaluationError("** takes numbers", "TypeError")
    if _whole(left) and _whole(right) and right > 0:
        _limit_bits(left.bit_length() * min(right, MAX_INTEGER_BITS + 1))
    found = left**right
    if isinstance(found, complex):
        raise EvaluationError("the power of a negative number is no real number")
    return found


def _modulo(budget: Budget, left: Value, right: Value) -> Value:
    if not _number(left) or not _number(right):  # of text it would be formatting
        raise EvaluationError("% takes numbers; write an f-string to format text", "TypeError")
    return left % right


BINARY: dict[type, Binary] = {
    ast.Add: _add,
    ast.Sub: lambda budget, left, right: left - right,
    ast.Mult: _multiply,
    ast.Div: lambda budget, left, right: left / right,
    ast.FloorDiv: lambda budget, left, right: left // right,
    ast.Mod: _modulo,
    ast.Pow: _power,
}

UNARY: dict[type, Callable[[Value], Value]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}

COMPARISONS: dict[type, Callable[[Value, Value], Value]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
