"""JSONPath: compile a path into a closure that selects values, and reference paths that also place values.

A definite path selects one value, and fails where it is missing. An indefinite path selects a list, which is empty if
nothing matches.
"""

from collections.abc import Callable
from functools import lru_cache

from aliquot.workflow.errors import RESULT_PATH_FAILED, RUNTIME, QueryRefusedError, StateError
from aliquot.workflow.query.path_syntax import (
    Comparison,
    Condition,
    Descend,
    Every,
    Indices,
    Names,
    Operand,
    ParsedPath,
    Part,
    Step,
    parse_path,
)
from aliquot.workflow.query.scope import MISSING, Scope, Work
from aliquot.workflow.values import Value, equal, is_number, kind_of, shown

MAX_MATCHES = 100_000
CONTEXT = "$$"
INPUT = "$"


class Path:
    """A compiled path."""

    __slots__ = ("_select", "_select_all", "definite", "parsed", "source")

    def __init__(self, parsed: ParsedPath) -> None:
        self.parsed = parsed
        self.source = parsed.source
        self.definite = parsed.definite
        self._select = _definite(parsed.steps)
        self._select_all = _indefinite(parsed.steps)

    @property
    def variable(self) -> str | None:
        """The name of the variable that the path begins at."""
        return None if self.parsed.root in {INPUT, CONTEXT} else self.parsed.root

    def find(self, scope: Scope) -> Value:
        """Return the selected value, or MISSING."""
        root = self.parsed.root
        if root == INPUT:
            value = scope.input
        elif root == CONTEXT:
            value = scope.context
        elif root in scope.variables:
            value = scope.variables[root]
        else:
            raise StateError(RUNTIME, f"The variable '${root}' has no value")
        return self._select(value) if self.definite else self._select_all(value, scope.work)

    def __call__(self, scope: Scope) -> Value:
        value = self.find(scope)
        if value is MISSING:
            root = {INPUT: scope.input, CONTEXT: scope.context}.get(self.parsed.root, scope.variables)
            raise StateError(RUNTIME, f"The JSONPath '{self.source}' selects nothing in {shown(root)}")
        return value


@lru_cache(maxsize=4096)
def compile_path(source: str) -> Path:
    """Compile a path, or refuse it."""
    return Path(parse_path(source))


def _definite(steps: tuple[Step, ...]) -> Callable[[Value], Value]:
    keys: list[str | int] = []
    for step in steps:
        if isinstance(step, Names):
            keys.append(step.names[0])
        elif isinstance(step, Indices):
            keys.append(step.indices[0])
    if not keys:
        return lambda value: value

    def select(value: Value) -> Value:
        for key in keys:
            if isinstance(key, str):
                if type(value) is not dict or key not in value:
                    return MISSING
            elif type(value) is not list or not -len(value) <= key < len(value):
                return MISSING
            value = value[key]
        return value

    return select


Selector = Callable[[list[Value], Value], list[Value]]


def _indefinite(steps: tuple[Step, ...]) -> Callable[[Value, Work], Value]:
    """Return the closure that selects all values. Sixteen values that it looks at are one step of work."""
    selectors = [_selector(step) for step in steps]

    def select(value: Value, work: Work) -> Value:
        found = [value]
        for selector in selectors:
            found = selector(found, value)
            work.spend(len(found) >> 4)
            if len(found) > MAX_MATCHES:
                raise StateError(RUNTIME, f"The JSONPath selects more than {MAX_MATCHES} values")
        return found

    return select


def _selector(step: Step) -> Selector:
    """Return the closure of one step: from the values found so far, and the root, to the values found next."""
    if isinstance(step, Names):
        names = step.names
        return lambda found, root: [
            value[name] for value in found if type(value) is dict for name in names if name in value
        ]
    if isinstance(step, Indices):
        indices = step.indices
        return lambda found, root: [
            value[index]
            for value in found
            if type(value) is list
            for index in indices
            if -len(value) <= index < len(value)
        ]
    if isinstance(step, Part):
        bounds = step.bounds
        return lambda found, root: [part for value in found if type(value) is list for part in value[bounds]]
    if isinstance(step, Every):
        return lambda found, root: [part for value in found for part in _parts(value)]
    if isinstance(step, Descend):
        return lambda found, root: _descendants(found)
    holds = _condition(step.condition)
    return lambda found, root: [part for value in found for part in _filtered(value) if holds(part, root)]


def _parts(value: Value) -> list[Value]:
    if type(value) is dict:
        return list(value.values())
    return value if type(value) is list else []


def _filtered(value: Value) -> list[Value]:
    """Return the values that a filter looks at: the elements of an array, or an object itself."""
    if type(value) is dict:
        return [value]
    return value if type(value) is list else []


def _descendants(found: list[Value]) -> list[Value]:
    made: list[Value] = []
    stack = found[::-1]
    while stack:
        value = stack.pop()
        if type(value) is dict or type(value) is list:
            made.append(value)
            if len(made) > MAX_MATCHES:
                raise StateError(RUNTIME, f"The JSONPath selects more than {MAX_MATCHES} values")
            stack.extend(_parts(value)[::-1])
    return made


Test = Callable[[Value, Value], bool]


def _condition(condition: Condition) -> Test:
    if isinstance(condition, Comparison):
        return _comparison(condition)
    parts = [_condition(part) for part in condition.parts]
    if condition.operator == "!":
        return lambda value, root: not parts[0](value, root)
    if condition.operator == "&&":
        return lambda value, root: all(part(value, root) for part in parts)
    return lambda value, root: any(part(value, root) for part in parts)


def _comparison(comparison: Comparison) -> Test:
    left = _operand(comparison.left)
    if not comparison.operator:
        return lambda value, root: left(value, root) is not MISSING
    right = _operand(comparison.right)
    compare = COMPARE[comparison.operator]
    return lambda value, root: compare(left(value, root), right(value, root))


def _operand(operand: Operand) -> Callable[[Value, Value], Value]:
    if not operand.root:
        return lambda value, root: operand.constant
    select = _definite(operand.steps)
    if operand.root == "@":
        return lambda value, root: select(value)
    return lambda value, root: select(root)


def _ordered(left: Value, right: Value) -> bool:
    return (is_number(left) and is_number(right)) or (isinstance(left, str) and isinstance(right, str))


COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": lambda left, right: _ordered(left, right) and left < right,
    "<=": lambda left, right: _ordered(left, right) and left <= right,
    ">": lambda left, right: _ordered(left, right) and left > right,
    ">=": lambda left, right: _ordered(left, right) and left >= right,
    "in": lambda left, right: isinstance(right, list) and any(equal(left, part) for part in right),
    "nin": lambda left, right: isinstance(right, list) and not any(equal(left, part) for part in right),
}


class ReferencePath:
    """A path that names one place: names, and indices from the front."""

    __slots__ = ("keys", "path", "source")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path.source
        self.keys: list[str | int] = [
            step.names[0] if isinstance(step, Names) else step.indices[0]  # type: ignore[union-attr]
            for step in path.parsed.steps
        ]

    def place(self, root: Value, value: Value) -> Value:
        """Return the root with the value at this place. The root itself is not changed, only copied along the path."""
        if not self.keys:
            return value
        return self._placed(root, value, 0)

    def _placed(self, node: Value, value: Value, depth: int) -> Value:
        if depth == len(self.keys):
            return value
        key = self.keys[depth]
        if isinstance(key, str):
            if node is MISSING:
                return {key: self._placed(MISSING, value, depth + 1)}
            if type(node) is dict:
                return {**node, key: self._placed(node.get(key, MISSING), value, depth + 1)}
        elif type(node) is list and 0 <= key < len(node):
            copy = list(node)
            copy[key] = self._placed(node[key], value, depth + 1)
            return copy
        found = "nothing" if node is MISSING else f"{kind_of(node)} {shown(node)}"
        raise StateError(RESULT_PATH_FAILED, f"Unable to apply the path '{self.source}': {key!r} does not fit {found}")


@lru_cache(maxsize=4096)
def compile_reference_path(source: str) -> ReferencePath:
    """Compile a reference path, or refuse it."""
    path = compile_path(source)
    if not path.definite:
        raise QueryRefusedError(f"{source!r} may select several values; a reference path names one place")
    if any(isinstance(step, Indices) and step.indices[0] < 0 for step in path.parsed.steps):
        raise QueryRefusedError(f"{source!r} counts from the end; a reference path has indices from 0 on")
    return ReferencePath(path)
