"""Parse a JSONPath into steps.

    path    = root step*            root: `$`, `$$` (the context object) or `$name` (a variable)
    step    = `.name` | `.*` | `..name` | `..*` | `..[…]` | `[selector]`
    selector= 'name' (, 'name')* | index (, index)* | from:to:step | * | ?(filter)

Filters have the operators of Jayway's JSONPath but `=~`: a regular expression of a tenant could run for hours.
"""

import re
from typing import NamedTuple, TypeAlias

from aliquot.workflow.errors import QueryRefusedError
from aliquot.workflow.values import Value

MAX_PATH_CHARACTERS = 4000
MAX_DESCENTS = 3
ROOT = re.compile(r"\$\$(?=[.\[]|$)|\$(?=[.\[]|$)|\$([A-Za-z_][A-Za-z0-9_]*)")
NAME = re.compile(r"[^\s.\[\]()'\",:?@*&|!<>=$]+")
NUMBER = re.compile(r"-?\d+")
SLICE = re.compile(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*(?::\s*(-?\d+)?\s*)?(?=\])")
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
LITERAL = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true\b|false\b|null\b")
COMPARISON = re.compile(r"==|!=|<=|>=|<|>|in\b|nin\b")
SPACE = re.compile(r"\s*")
WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}


class Names(NamedTuple):
    """Selects the members with these names."""

    names: tuple[str, ...]


class Indices(NamedTuple):
    """Selects the elements at these positions, counted from the end if negative."""

    indices: tuple[int, ...]


class Part(NamedTuple):
    """Selects a slice of an array."""

    bounds: slice


class Every(NamedTuple):
    """Selects all members or elements."""


class Descend(NamedTuple):
    """Selects a value and everything inside it, which the next step looks into."""


class Where(NamedTuple):
    """Selects the elements for which a condition holds."""

    condition: "Condition"


class Operand(NamedTuple):
    """One side of a comparison: a path from `@` or `$`, or a constant."""

    root: str  # "@", "$" or "" for a constant
    steps: tuple["Step", ...] = ()
    constant: Value = None


class Comparison(NamedTuple):
    """A comparison, or a test whether a path selects something if `operator` is empty."""

    left: Operand
    operator: str = ""
    right: Operand = Operand("")


class Logic(NamedTuple):
    """Conditions joined by `&&` or `||`, or one condition that is negated by `!`."""

    operator: str
    parts: tuple["Condition", ...]


Condition: TypeAlias = Comparison | Logic
Step: TypeAlias = Names | Indices | Part | Every | Descend | Where


class ParsedPath(NamedTuple):
    """A path: the root (`$`, `$$` or the name of a variable) and the steps from there."""

    source: str
    root: str
    steps: tuple[Step, ...]

    @property
    def definite(self) -> bool:
        """Tell whether the path selects one value at most."""
        return all(
            (isinstance(step, Names) and len(step.names) == 1) or (isinstance(step, Indices) and len(step.indices) == 1)
            for step in self.steps
        )


def parse_path(source: str) -> ParsedPath:
    """Parse a path, or refuse it with the position of the mistake."""
    if len(source) > MAX_PATH_CHARACTERS:
        raise QueryRefusedError(f"a path has at most {MAX_PATH_CHARACTERS} characters")
    found = ROOT.match(source)
    if found is None:
        raise QueryRefusedError(f"{source!r} is no path: it must begin with $, $$ or $variable")
    parser = _Parser(source, found.end())
    steps = parser.steps()
    if parser.position != len(source):
        raise parser.refusal("the end of the path")
    if sum(isinstance(step, Descend) for step in steps) > MAX_DESCENTS:
        raise QueryRefusedError(f"{source!r} has more than {MAX_DESCENTS} times ..")
    return ParsedPath(source, found[1] or found[0], steps)


class _Parser:
    """The position in the source of a path."""

    def __init__(self, source: str, position: int) -> None:
        self.source = source
        self.position = position
        self.depth = 0

    def refusal(self, expected: str) -> QueryRefusedError:
        rest = self.source[self.position : self.position + 20]
        return QueryRefusedError(f"{self.source!r} at character {self.position + 1}: expected {expected}, not {rest!r}")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.source, self.position)
        if found:
            self.position = found.end()
        return found

    def skip(self, text: str) -> bool:
        self.take(SPACE)
        if self.source.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def steps(self) -> tuple[Step, ...]:
        made: list[Step] = []
        while self.position < len(self.source):
            if self.source.startswith("..", self.position):
                self.position += 2
                made.append(Descend())
                made.append(self.bracket() if self.source.startswith("[", self.position) else self.member())
            elif self.source.startswith(".", self.position):
                self.position += 1
                made.append(self.member())
            elif self.source.startswith("[", self.position):
                made.append(self.bracket())
            else:
                break
        return tuple(made)

    def member(self) -> Step:
        if self.source.startswith("*", self.position):
            self.position += 1
            return Every()
        name = self.take(NAME)
        if name is None:
            raise self.refusal("a name")
        return Names((name[0],))

    def bracket(self) -> Step:
        self.position += 1
        step = self.selector()
        if not self.skip("]"):
            raise self.refusal("]")
        return step

    def selector(self) -> Step:
        if self.skip("*"):
            return Every()
        if self.skip("?"):
            return self.filter()
        cut = self.take(SLICE)
        if cut:
            bounds = [int(bound) if bound else None for bound in cut.groups()]
            if bounds[2] == 0:
                raise self.refusal("a slice with a step that is not 0")
            return Part(slice(*bounds))
        self.take(SPACE)
        if number := self.take(NUMBER):
            numbers = [int(number[0])]
            while self.skip(","):
                self.take(SPACE)
                following = self.take(NUMBER)
                if following is None:
                    raise self.refusal("an index")
                numbers.append(int(following[0]))
            return Indices(tuple(numbers))
        names = [self.quoted()]
        while self.skip(","):
            names.append(self.quoted())
        return Names(tuple(names))

    def quoted(self) -> str:
        self.take(SPACE)
        found = self.take(QUOTED)
        if found is None:
            raise self.refusal("an index, a quoted name, *, a slice or ?(filter)")
        text = found[1] if found[1] is not None else found[2]
        return re.sub(r"\\(.)", r"\1", text)

    def filter(self) -> Where:
        if not self.skip("("):
            raise self.refusal("(")
        condition = self.either()
        if not self.skip(")"):
            raise self.refusal(") or an operator")
        return Where(condition)

    def either(self) -> Condition:
        parts = [self.both()]
        while self.skip("||"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Logic("||", tuple(parts))

    def both(self) -> Condition:
        parts = [self.single()]
        while self.skip("&&"):
            parts.append(self.single())
        return parts[0] if len(parts) == 1 else Logic("&&", tuple(parts))

    def single(self) -> Condition:
        self.depth += 1
        if self.depth > 20:  # noqa: PLR2004 - far more than anybody writes by hand
            raise self.refusal("fewer parentheses")
        try:
            if not self.source.startswith("!=", self.position) and self.skip("!"):
                return Logic("!", (self.single(),))
            if self.skip("("):
                condition = self.either()
                if not self.skip(")"):
                    raise self.refusal(")")
                return condition
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self) -> Comparison:
        left = self.operand()
        self.take(SPACE)
        operator = self.take(COMPARISON)
        if operator is None:
            if not left.root:
                raise self.refusal("an operator")
            return Comparison(left)
        return Comparison(left, operator[0], self.operand())

    def operand(self) -> Operand:
        self.take(SPACE)
        for root in "@$":
            if self.skip(root):
                steps = self.steps()
                if not ParsedPath("", root, steps).definite:
                    raise self.refusal("a path in the filter that selects one value")
                return Operand(root, steps)
        if self.skip("["):
            values: list[Value] = []
            while not self.skip("]"):
                values.append(self.operand().constant)
                self.skip(",")
            return Operand("", (), values)
        if literal := self.take(LITERAL):
            text = literal[0]
            number = float(text) if any(mark in text for mark in ".eE") else None
            return Operand("", (), WORDS[text] if text in WORDS else int(text) if number is None else number)
        if self.source[self.position : self.position + 1] in {"'", '"'}:
            return Operand("", (), self.quoted())
        raise self.refusal("@, $, a number, a quoted string, true, false or null")
