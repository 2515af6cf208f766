"""Short JSONata expressions, compiled without a package: paths of names, comparisons, sums and conditions.

Only values with a plain meaning are handled here. An array inside a path, a value that is missing, or operands of
different types are unusual: JSONata has rules of its own for them, so the whole expression is evaluated by the package.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from aliquot.expressions.budget import measure
from aliquot.workflow.query.scope import Scope
from aliquot.workflow.values import Value, is_number

MAX_SHORT_CHARACTERS = 200
MAX_NESTED_PARENTHESES = 10
MAX_SHORT_VALUE_SIZE = 20_000  # in characters of JSON; to look at more takes longer than a step should
MAX_EXACT_INTEGER = 2**53  # JSONata's numbers are floating

Run = Callable[[Scope], Value]
Apply = Callable[[Value, Value], Value]

TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:0|[1-9][0-9]{0,14})(?![0-9.eE\w]))|(?P<text>'[^'\\\n]*'|"[^"\\\n]*")"""
    r"""|(?P<path>\$[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*(?!\s*[.(\[{@#^~]))"""
    r"""|(?P<word>(?:true|false|null|and|or)\b)|(?P<sign>!=|<=|>=|:(?!=)|[=<>+\-*&?()]))""",
    re.ASCII,
)
WORDS = {"true": True, "false": False, "null": None}
KEYWORDS = {"and", "or", "in", "true", "false", "null", "function"}


class UnusualError(Exception):
    """A value for which JSONata has a rule of its own."""


class _NotShortError(Exception):
    """The expression is not one of those that are handled here."""


class _ShortToken(NamedTuple):
    kind: str
    text: str


def compile_short(source: str) -> Run | None:
    """Return how an expression runs, or None if it is not a short one. The run may raise UnusualError."""
    if len(source) > MAX_SHORT_CHARACTERS:
        return None
    try:
        run = _ShortParser(_tokens(source.strip())).whole()
    except _NotShortError:
        return None

    def checked(scope: Scope) -> Value:
        scope.work.spend(1)
        value = run(scope)
        if type(value) in {list, dict, str} and measure(value, MAX_SHORT_VALUE_SIZE) > MAX_SHORT_VALUE_SIZE:
            raise UnusualError
        return value

    return checked


def _tokens(source: str) -> list[_ShortToken]:
    made = []
    at = 0
    while at < len(source):
        found = TOKEN.match(source, at)
        if found is None or found.lastgroup is None:
            raise _NotShortError
        made.append(_ShortToken(found.lastgroup, found[found.lastgroup]))
        at = found.end()
    return made


class _ShortParser:
    """A parser by precedence. Each level takes the operators that bind as strongly."""

    def __init__(self, tokens: list[_ShortToken]) -> None:
        self._tokens = tokens
        self._at = 0
        self._nested = 0

    def whole(self) -> Run:
        run = self._condition()
        if self._at != len(self._tokens):
            raise _NotShortError
        return run

    def _next(self) -> str:
        """Return the sign or word that comes next, or nothing."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else _ShortToken("end", "")
        return token.text if token.kind in {"sign", "word"} else ""

    def _take(self, text: str) -> None:
        if self._next() != text:
            raise _NotShortError
        self._at += 1

    def _condition(self) -> Run:
        test = self._level(0)
        if self._next() != "?":
            return test
        self._at += 1
        then = self._level(0)
        self._take(":")
        return _chosen(test, then, self._level(0))

    def _level(self, level: int) -> Run:
        if level == len(LEVELS):
            return self._operand()
        left = self._level(level + 1)
        while (apply := LEVELS[level].get(self._next())) is not None:
            self._at += 1
            left = _applied(apply, left, self._level(level + 1))
        return left

    def _operand(self) -> Run:
        if self._at == len(self._tokens):
            raise _NotShortError
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            return _constant(int(text))
        if kind == "text":
            return _constant(text[1:-1])
        if text in WORDS:
            return _constant(WORDS[text])
        if kind == "path":
            return _path(*(part.strip() for part in text[1:].split(".")))
        if text != "(" or self._nested == MAX_NESTED_PARENTHESES:
            raise _NotShortError
        self._nested += 1
        inner = self._condition()
        self._take(")")
        self._nested -= 1
        return inner


def _constant(value: Value) -> Run:
    return lambda scope: value


def _applied(apply: Apply, left: Run, right: Run) -> Run:
    return lambda scope: apply(left(scope), right(scope))


def _chosen(test: Run, then: Run, otherwise: Run) -> Run:
    def run(scope: Scope) -> Value:
        held = test(scope)
        if held is True:
            return then(scope)
        if held is False:
            return otherwise(scope)
        raise UnusualError

    return run


def _path(name: str, *keys: str) -> Run:
    if not KEYWORDS.isdisjoint(keys):
        raise _NotShortError
    if name != "states":
        return lambda scope: _found(scope.variables, (name, *keys))
    if keys[:1] == ("context",):
        return lambda scope: _found(scope.context, keys[1:])
    if not keys:
        raise _NotShortError
    return lambda scope: _found(scope.states, keys)


def _found(value: Value, keys: tuple[str, ...]) -> Value:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            raise UnusualError
        value = value[key]
    return value


def _numbers(left: Value, right: Value) -> None:
    for value in (left, right):
        if type(value) is not int or abs(value) > MAX_EXACT_INTEGER:
            raise UnusualError


def _exact(value: int) -> int:
    if abs(value) > MAX_EXACT_INTEGER:
        raise UnusualError
    return value


def _arithmetic(apply: Callable[[int, int], int]) -> Apply:
    def run(left: Value, right: Value) -> Value:
        _numbers(left, right)
        return _exact(apply(left, right))

    return run


def _compared(apply: Apply) -> Apply:
    def run(left: Value, right: Value) -> Value:
        if not (is_number(left) and is_number(right)) and not (type(left) is str and type(right) is str):
            raise UnusualError
        return apply(left, right)

    return run


def _equal(left: Value, right: Value) -> bool:
    if is_number(left) and is_number(right):
        return bool(left == right)
    if type(left) is not type(right) or type(left) not in {str, bool}:
        raise UnusualError
    return bool(left == right)


def _joined(left: Value, right: Value) -> str:
    parts = []
    for value in (left, right):
        if type(value) is int and abs(value) <= MAX_EXACT_INTEGER:
            parts.append(str(value))
        elif type(value) is str and len(value) <= MAX_SHORT_VALUE_SIZE:
            parts.append(value)
        else:
            raise UnusualError
    return "".join(parts)


def _logical(apply: Callable[[bool, bool], bool]) -> Apply:
    def run(left: Value, right: Value) -> Value:
        if type(left) is not bool or type(right) is not bool:
            raise UnusualError
        return apply(left, right)

    return run


LEVELS: tuple[dict[str, Apply], ...] = (  # from the weakest to the strongest
    {"or": _logical(lambda left, right: left or right)},
    {"and": _logical(lambda left, right: left and right)},
    {
        "=": _equal,
        "!=": lambda left, right: not _equal(left, right),
        "<": _compared(lambda left, right: left < right),
        "<=": _compared(lambda left, right: left <= right),
        ">": _compared(lambda left, right: left > right),
        ">=": _compared(lambda left, right: left >= right),
    },
    {
        "+": _arithmetic(lambda left, right: left + right),
        "-": _arithmetic(lambda left, right: left - right),
        "&": _joined,
    },
    {"*": _arithmetic(lambda left, right: left * right)},
)
