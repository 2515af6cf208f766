"""JSONata by the package `jsonata-python`, which is imported when the first expression is compiled.

The package raises the recursion limit of its process, and takes seconds to compile a long expression. So the server
never imports it: it evaluates short expressions by itself (`short_jsonata`), and the expression process all others.

An expression reads `$states` and the workflow's variables alone: `$eval`, `$$`, `$` and names at the top level are
refused. `$now`, `$millis`, `$random` and `$uuid` give the same values whenever the log is replayed. The work of an
evaluation is bounded by counted steps, and the size of every intermediate result is bounded too.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from aliquot.workflow.chance import fraction
from aliquot.workflow.errors import DATA_LIMIT, QUERY_FAILED, QueryRefusedError, StateError
from aliquot.workflow.query.intrinsic_functions import IntrinsicError, hash_text
from aliquot.workflow.query.jsonata_syntax import ADDED, inspect, reads_context
from aliquot.workflow.query.scope import Scope, TooLongError, Work
from aliquot.workflow.query.short_jsonata import UnusualError, compile_short
from aliquot.workflow.query.templates import Query
from aliquot.workflow.times import format_time
from aliquot.workflow.values import MAX_INTEGER, MAX_VALUE_SIZE, ObjectRef, Value, kind_of, parse_json

MAX_SOURCE_CHARACTERS = 10_000
MAX_DEPTH = 60
MAX_RANGE_ITEMS = 100_000


@lru_cache(maxsize=1024)
def compile_jsonata(source: str) -> Query:
    """Compile an expression, or refuse it."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise QueryRefusedError(f"an expression has at most {MAX_SOURCE_CHARACTERS} characters")
    module = _library()
    try:
        compiled = module.Jsonata(source)
    except Exception as error:
        raise QueryRefusedError(f"{source.strip()!r} is no JSONata: {error}") from error
    compiled.set_output_convert_nulls(False)
    compiled.set_validate_input(False)
    found = inspect(compiled.ast, frozenset(module.Jsonata.static_frame.bindings))
    return Query(_runner(source, compiled), found.variables, found.slow, parts=found.parts)


@lru_cache(maxsize=1024)
def compile_checked_jsonata(source: str) -> Query:
    """Compile an expression of a definition that has been checked, when it is first evaluated.

    A short expression can be evaluated on the event loop. If its values are unusual, it is evaluated beside.
    """

    def run_whole(scope: Scope) -> Value:
        return compile_jsonata(source).run(scope)

    short = compile_short(source)
    if short is None:
        return Query(run_whole, slow=True)

    def run(scope: Scope) -> Value:
        try:
            return short(scope)
        except UnusualError:
            if scope.work.left is not None:
                raise TooLongError from None
            return run_whole(scope)

    return Query(run)


def _library() -> Any:  # noqa: ANN401 - the package ships no types
    import jsonata  # noqa: PLC0415 - imported when first needed

    return jsonata


def _runner(source: str, compiled: Any) -> Callable[[Scope], Value]:  # noqa: ANN401
    null = _library().utils.Utils.NULL_VALUE
    added = [name for name in ADDED if f"${name}" in source]
    with_context = reads_context(source)

    def run(scope: Scope) -> Value:
        bindings: dict[str, Value] = {
            **{name: null if value is None else value for name, value in scope.variables.items()},
            **(_functions(scope) if added else {}),
            "states": scope.record() if with_context else scope.states,
        }
        bindings.update(_guards(scope.work))
        try:
            value = compiled.evaluate(None, bindings)
        except (StateError, TooLongError):
            raise
        except MemoryError as error:
            raise StateError(DATA_LIMIT, f"The JSONata expression '{source.strip()}' needs too much memory") from error
        except Exception as error:
            raise StateError(QUERY_FAILED, f"The JSONata expression '{source.strip()}' failed: {error}") from error
        if value is None:
            raise StateError(QUERY_FAILED, f"The JSONata expression '{source.strip()}' returned nothing (undefined)")
        return _Plain(null, source).convert(value, 0)

    return run


def _guards(work: Work) -> dict[str, Callable[..., None]]:
    """Return callbacks that bound the steps, the depth, and the size of each intermediate result."""
    depth = 0

    def entry(expression: object, value: object, frame: object) -> None:
        nonlocal depth
        depth += 1
        work.spend(1)
        if depth > MAX_DEPTH:
            raise StateError(QUERY_FAILED, f"The JSONata expression is nested more than {MAX_DEPTH} calls deep")

    def leave(expression: object, value: object, frame: object, result: Value) -> None:
        nonlocal depth
        depth -= 1
        if isinstance(result, str | list) and len(result) > MAX_VALUE_SIZE:
            raise StateError(DATA_LIMIT, f"A JSONata expression built more than {MAX_VALUE_SIZE} characters or items")

    return {"__evaluate_entry": entry, "__evaluate_exit": leave}


class _Plain:
    """The conversion of a result to plain JSON, with a bound on its size."""

    def __init__(self, null: object, source: str) -> None:
        self._null = null
        self._source = source
        self._size = 0

    def convert(self, value: Value, depth: int) -> Value:
        self._size += 2 + (len(value) if isinstance(value, str | list | dict) else 6)
        if self._size > MAX_VALUE_SIZE or depth > 2 * MAX_DEPTH:
            raise StateError(DATA_LIMIT, f"A JSONata expression built a value of more than {MAX_VALUE_SIZE} characters")
        if value is None or value is self._null:
            return None
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            return self.convert(float(value), depth)
        if isinstance(value, ObjectRef):
            return value
        if isinstance(value, bool | str | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        if isinstance(value, Mapping):
            return {key: self.convert(part, depth + 1) for key, part in value.items()}
        if isinstance(value, list):
            return [self.convert(part, depth + 1) for part in value]
        reason = f"The JSONata expression '{self._source.strip()}' returned {type(value).__name__}, which is no JSON"
        raise StateError(QUERY_FAILED, reason)


def _functions(scope: Scope) -> dict[str, object]:
    """Return the functions that the States Language adds, and those that depend on the step."""
    wrap = _library().Jsonata.JLambda
    chance = scope.chance
    made: dict[str, Callable[..., Value]] = {
        "partition": _partition,
        "range": _range,
        "hash": _hash,
        "random": lambda seed=None: chance.fraction() if seed is None else fraction(f"random {seed}"),
        "uuid": chance.uuid,
        "parse": _parse,
        "now": lambda *arguments: _now(scope.now, *arguments),
        "millis": lambda: math.floor(scope.now * 1000),
    }
    return {name: wrap(function) for name, function in made.items()}


def _now(now: float, *arguments: Value) -> str:
    if arguments:
        raise ValueError("$now takes no arguments here; write $fromMillis($millis(), picture)")
    return format_time(now)


def _partition(array: Value, size: Value) -> list[Value]:
    if not isinstance(array, list) or not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise ValueError(f"$partition takes an array and a positive integer, not {kind_of(array)} and {size!r}")
    return [array[start : start + size] for start in range(0, len(array), size)]


def _range(start: Value, end: Value, step: Value) -> list[Value]:
    if not all(isinstance(bound, int) and not isinstance(bound, bool) for bound in (start, end, step)) or step == 0:
        raise ValueError("$range takes three integers, and the step is not 0")
    found = range(start, end + (1 if step > 0 else -1), step)
    if len(found) > MAX_RANGE_ITEMS:
        raise ValueError(f"$range makes at most {MAX_RANGE_ITEMS} items")
    return list(found)


def _hash(content: Value, algorithm: Value = "SHA-256") -> str:
    try:
        return hash_text(content, algorithm)
    except IntrinsicError as error:
        raise ValueError(f"$hash: {error}") from error


def _parse(text: Value) -> Value:
    if not isinstance(text, str):
        raise TypeError(f"$parse takes a string, not {kind_of(text)}")
    found = parse_json(text)
    return _library().utils.Utils.NULL_VALUE if found is None else found
