"""Parse and compile calls of intrinsic functions, for example `States.Format('Hello {}', $.name)`."""

import re
from collections.abc import Callable

from aliquot.expressions.budget import measure
from aliquot.workflow.errors import RUNTIME, QueryRefusedError, StateError
from aliquot.workflow.query.intrinsic_functions import INTRINSICS, IntrinsicError
from aliquot.workflow.query.jsonpath import compile_path
from aliquot.workflow.query.scope import Scope
from aliquot.workflow.values import Value, bounded

CALL = re.compile(r"\s*States\.([A-Za-z0-9]+)\s*\(")
TEXT = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
WORD = re.compile(r"(true|false|null)\b")
WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}
SPACE = re.compile(r"\s*")
MAX_CALL_CHARACTERS = 10_000
MAX_NESTED_CALLS = 10

Query = Callable[[Scope], Value]


class CompiledCall:
    """A compiled call, with the variables that its paths read."""

    __slots__ = ("run", "variables")

    def __init__(self, run: Query, variables: tuple[str, ...]) -> None:
        self.run = run
        self.variables = variables


def compile_intrinsic(source: str) -> CompiledCall:
    """Compile a call, or refuse it."""
    if len(source) > MAX_CALL_CHARACTERS:
        raise QueryRefusedError(f"an intrinsic function has at most {MAX_CALL_CHARACTERS} characters")
    parser = _CallParser(source)
    run = parser.call(0)
    if source[parser.position :].strip():
        raise parser.refusal("the end")
    return CompiledCall(run, tuple(parser.variables))


class _CallParser:
    """The position in the source of a call, and the variables found so far."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.position = 0
        self.variables: dict[str, None] = {}

    def refusal(self, expected: str) -> QueryRefusedError:
        rest = self.source[self.position : self.position + 20]
        return QueryRefusedError(f"{self.source!r} at character {self.position + 1}: expected {expected}, not {rest!r}")

    def skip(self, mark: str) -> bool:
        found = SPACE.match(self.source, self.position)
        self.position = found.end() if found else self.position
        if self.source.startswith(mark, self.position):
            self.position += len(mark)
            return True
        return False

    def call(self, depth: int) -> Query:
        found = CALL.match(self.source, self.position)
        if found is None or depth >= MAX_NESTED_CALLS:
            raise self.refusal(f"a call States.Name(…), nested at most {MAX_NESTED_CALLS} deep")
        name = found[1]
        if name not in INTRINSICS:
            raise QueryRefusedError(f"States.{name} is unknown; there are States.{', States.'.join(INTRINSICS)}")
        self.position = found.end()
        arguments: list[Query] = []
        if not self.skip(")"):
            while True:
                template = name == "Format" and not arguments  # which reads its escapes itself
                arguments.append(self.argument(depth, raw=template))
                if self.skip(")"):
                    break
                if not self.skip(","):
                    raise self.refusal(", or )")
        return _applied(name, arguments, nested=depth > 0)

    def argument(self, depth: int, *, raw: bool) -> Query:
        self.skip("")
        if self.source.startswith("States.", self.position):
            return self.call(depth + 1)
        if self.source.startswith("$", self.position):
            return self.path()
        for pattern in (TEXT, WORD, NUMBER):
            if found := pattern.match(self.source, self.position):
                self.position = found.end()
                return _literal(found, pattern, raw=raw)
        raise self.refusal("a path, a number, 'text', true, false, null or a nested call")

    def path(self) -> Query:
        """Take a path up to the comma or parenthesis that ends the argument."""
        start, depth, quote = self.position, 0, ""
        while self.position < len(self.source):
            mark = self.source[self.position]
            if quote:
                quote = "" if mark == quote else quote
            elif mark in "'\"":
                quote = mark
            elif mark in "[(":
                depth += 1
            elif mark in "])" and depth:
                depth -= 1
            elif mark in ",)":
                break
            self.position += 1
        path = compile_path(self.source[start : self.position].strip())
        if path.variable:
            self.variables[path.variable] = None
        return path


def _literal(found: re.Match[str], pattern: re.Pattern[str], *, raw: bool) -> Query:
    value: Value
    if pattern is TEXT:
        value = found[1] if raw else re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)
    elif pattern is WORD:
        value = WORDS[found[0]]
    else:
        text = found[0]
        value = float(text) if any(mark in text for mark in ".eE") else int(text)
    return lambda scope: value


def _applied(name: str, arguments: list[Query], *, nested: bool) -> Query:
    intrinsic = INTRINSICS[name]
    least, most = intrinsic.min_arguments, intrinsic.max_arguments
    if len(arguments) < least or (most is not None and len(arguments) > most):
        takes = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        raise QueryRefusedError(f"States.{name} takes {takes} arguments, not {len(arguments)}")
    function = intrinsic.run

    def run(scope: Scope) -> Value:
        values = [argument(scope) for argument in arguments]
        scope.work.spend(sum(measure(value) for value in values if type(value) in {list, dict, str}) >> 6)
        try:
            value = function(scope.chance, *values)
        except (IntrinsicError, ValueError, OverflowError) as error:
            raise StateError(RUNTIME, f"States.{name} failed: {error}") from error
        return bounded(value) if nested else value

    return run
