"""States under construction. They point to each other as objects, and get their names in the end."""

import ast
from typing import Any, NamedTuple

TASK, PASS, WAIT, CHOICE, FAIL, SUCCEED = "Task", "Pass", "Wait", "Choice", "Fail", "Succeed"
PARALLEL, MAP = "Parallel", "Map"
Assigned = dict[str, ast.expr]


class Transition(NamedTuple):
    """A rule of Choice or Catch: when it holds, what it assigns, and the step after it."""

    when: Any  # a condition, or the names of errors
    assign: Assigned
    target: "Step"


class Step:
    """A state, or a join: a place without a state that other steps lead to before it is known what stands there."""

    def __init__(self, kind: str, title: str, node: ast.AST, **fields: Any) -> None:  # noqa: ANN401 - as written out
        self.kind = kind  # empty for a join
        self.title = title
        self.line = getattr(node, "lineno", 0)
        self.column = getattr(node, "col_offset", 0)
        self.fields = fields
        self.assign: Assigned = {}
        self.output: ast.expr | None = None
        self.next: Step | None = None  # None ends the machine
        self.rules: list[Transition] = []  # of Choice
        self.catch: list[Transition] = []
        self.machines: list[Step] = []  # the first steps of branches, or of the iterations

    def settled(self) -> "Step":
        """Return the state that a join leads to. A ring of joins is returned as a join."""
        step, seen = self, [self]
        while not step.kind and step.next is not None and step.next not in seen:
            step = step.next
            seen.append(step)
        return step

    def targets(self) -> list["Step"]:
        """Return the states that follow this one in its machine."""
        found = [rule.target for rule in (*self.rules, *self.catch)]
        return [step.settled() for step in (*found, *([self.next] if self.next is not None else []))]

    @property
    def ends(self) -> bool:
        return self.kind in {FAIL, SUCCEED} or (self.next is None and self.kind != CHOICE)


def join(node: ast.AST) -> Step:
    """Return a place that gets its step later."""
    return Step("", "", node)


def states_part(part: str) -> ast.expr:
    """Return the expression for a part of `states`: input, result or errorOutput."""
    return ast.Attribute(ast.Name("states", ast.Load()), part, ast.Load())


def variable(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def list_of(items: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("list", ast.Load()), [items], [])
