"""Bounds of an expression: steps of work, and sizes of the values that it builds.

A value that contains another value many times counts it many times, because it is written out many times in the end.
So `[[[x] * 1000] * 1000] * 1000` is refused, although it would need little memory.
"""

from math import isfinite
from typing import Any, TypeAlias

Value: TypeAlias = Any  # a JSON value

MAX_STEPS = 100_000
MAX_SIZE = 1_000_000  # in characters of JSON, approximately
MAX_INTEGER_BITS = 1024
MAX_RESULT_INTEGER = 2**63 - 1
MAX_SOURCE_CHARACTERS = 10_000
MAX_NESTING = 40

NUMBER_SIZE = 8
CONTAINERS = (list, dict, tuple)
COMPARABLE = frozenset({*CONTAINERS, str, int, float, bool, type(None), set, range})


class ExpressionError(Exception):
    """The root of the errors of this package."""


class ExpressionRefusedError(ExpressionError):
    """The source is not an expression that a workflow may contain."""


class EvaluationError(ExpressionError):
    """The evaluation of an expression failed. `kind` is the name of Python's exception."""

    def __init__(self, message: str, kind: str = "ValueError") -> None:
        super().__init__(message)
        self.kind = kind


def measure(value: Value, limit: int = MAX_SIZE) -> int:
    """Return the approximate size of a value as JSON, or a number above the limit as soon as it is exceeded."""
    if type(value) is str:
        return len(value) + 2
    if type(value) not in CONTAINERS:
        return NUMBER_SIZE
    size = 0
    stack = [value]
    while stack and size <= limit:
        container = stack.pop()
        size += 2 + len(container)
        if type(container) is dict:
            size += sum(map(len, container))
            parts = container.values()
        else:
            parts = container
        for part in parts:
            if type(part) is str:
                size += len(part) + 2
            elif type(part) in CONTAINERS:
                stack.append(part)
            else:
                size += NUMBER_SIZE
            if size > limit:
                break
    return size


def check_numbers(value: Value) -> None:
    """Refuse numbers that JSON cannot hold: integers of more than 64 bits, infinity, and what is no number."""
    stack = [value]
    while stack:
        part = stack.pop()
        if type(part) is dict:
            stack.extend(part.values())
        elif type(part) is list:
            stack.extend(part)
        elif (type(part) is float and not isfinite(part)) or (type(part) is int and abs(part) > MAX_RESULT_INTEGER):
            raise EvaluationError(f"the value has a number that JSON cannot hold: {part:.6g}", "OverflowError")


class Budget:
    """The steps that an evaluation has left."""

    __slots__ = ("steps",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.steps = steps

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise EvaluationError(f"the expression takes more than {MAX_STEPS} steps", "TimeoutError")

    def built(self, value: Value) -> Value:
        """Return a new value after its size has been checked and paid for."""
        size = measure(value)
        if size > MAX_SIZE:
            raise EvaluationError(f"the expression builds a value of more than {MAX_SIZE} characters", "MemoryError")
        self.spend(size >> 4)
        return value

    def compared(self, left: Value, right: Value) -> None:
        """Pay for the comparison of two values. One that is no JSON cannot be compared."""
        for value in (left, right):
            if type(value) not in COMPARABLE:
                raise EvaluationError(f"{value!r} cannot be compared in a workflow; a function can do it", "TypeError")
        if type(left) in CONTAINERS or type(right) in CONTAINERS:
            self.spend((min(measure(left), measure(right))) >> 4)
        elif type(left) is str and type(right) is str:
            self.spend(min(len(left), len(right)) >> 6)
