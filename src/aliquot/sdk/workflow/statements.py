"""Statements of a workflow: each kind has a function here that makes its states, and leads to the step after it."""

import ast
from collections.abc import Callable
from typing import Any

from aliquot.sdk.workflow.loops import for_loop, unpacked, while_loop
from aliquot.sdk.workflow.mistakes import Mistake, RefusedConstruct, shown
from aliquot.sdk.workflow.names import Names, Scope
from aliquot.sdk.workflow.pure import can_fail, condition
from aliquot.sdk.workflow.raising import raised, tried
from aliquot.sdk.workflow.sharing import InPlaceChanges
from aliquot.sdk.workflow.steps import CHOICE, SUCCEED, Assigned, Step, Transition, list_of, states_part, variable
from aliquot.sdk.workflow.values import Place, Values

MAX_CALLS = 100  # in one statement
TOO_LONG = "this is nested too deep, or has too many calls; write it in several lines"
INSTEAD: dict[type, str] = {
    ast.AsyncFor: "write for",
    ast.AsyncFunctionDef: "move it to the top of the file, and put @app.function over it",
    ast.AsyncWith: "open it in a function of the app",
    ast.ClassDef: "move it to the top of the file",
    ast.Delete: "leave the variable as it is",
    ast.FunctionDef: "move it to the top of the file, and put @app.function over it",
    ast.Global: "return the value, or pass it on",
    ast.Import: "import it at the top of the file, and use it in a function of the app",
    ast.ImportFrom: "import it at the top of the file, and use it in a function of the app",
    ast.Match: "write if and elif",
    ast.Nonlocal: "return the value, or pass it on",
    ast.TryStar: "write except",
    ast.With: "open it in a function of the app",
}


def _check_calls(statement: ast.stmt) -> None:
    """Refuse a statement with too many calls, each of which becomes a state. Those in its blocks are not counted."""
    calls = 0
    nodes: list[ast.AST] = [statement]
    while nodes:
        for node in ast.iter_child_nodes(nodes.pop()):
            if not isinstance(node, ast.stmt | ast.ExceptHandler):
                nodes.append(node)
                calls += isinstance(node, ast.Call)
    if calls > MAX_CALLS:
        raise RefusedConstruct(statement, TOO_LONG)


class Statements(Values):
    """Makes the states of statements. Mistakes are collected, so that all of them can be told."""

    def __init__(self, names: Names, function: ast.FunctionDef) -> None:
        super().__init__(names)
        self.mistakes: list[Mistake] = []
        self.changes = InPlaceChanges(function)

    def block(self, body: list[ast.stmt], scope: Scope, after: Step) -> Step:
        """Return the first step of some statements."""
        for statement in reversed(body):
            try:
                _check_calls(statement)
                after = STATEMENTS.get(type(statement), _refused)(self, statement, scope, after)
            except RefusedConstruct as refused:
                self.mistakes.append(refused.mistake)
            except RecursionError:
                self.mistakes.append(RefusedConstruct(statement, TOO_LONG).mistake)
        return after

    # --- places of assignments ----------------------------------------------------------------------------

    def place(self, targets: list[ast.expr], scope: Scope) -> Place:
        """Return how a value is assigned to targets."""
        places = [self._place(target, scope) for target in targets]
        return lambda value: {name: part for place in places for name, part in place(value).items()}

    def _place(self, target: ast.expr, scope: Scope) -> Place:
        if isinstance(target, ast.Name):
            name = self.names.variables[target.id]
            return lambda value: {name: value}
        if isinstance(target, ast.Tuple | ast.List):
            return unpacked(target, self.names)
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            return self._item(target, target.value, scope)
        raise RefusedConstruct(target, "assign to names; for a field write d = {**d, 'key': value}")

    def _item(self, target: ast.Subscript, owner: ast.Name, scope: Scope) -> Place:
        if not self.changes.is_dict(owner.id) or isinstance(target.slice, ast.Slice):
            text = f"{owner.id} = {{**{owner.id}, key: value}}"
            raise RefusedConstruct(target, f"only a dictionary made in this workflow is changed; write {text}")
        self.check_changed(target, owner.id, f"{owner.id} = {{**{owner.id}, key: value}}")
        if self.has_steps(target.slice, scope):
            raise RefusedConstruct(target, "call the function in a line of its own, and use its result here")
        name, key = self.names.variables[owner.id], self.pure(target.slice, scope)
        return lambda value: {name: ast.Dict([None, key], [variable(name), value])}

    def check_changed(self, node: ast.AST, name: str, instead: str) -> None:
        """Refuse a change in place of a value that another name may hold."""
        if name not in self.names.variables or not self.changes.allowed(name):
            reason = "another name may hold this value, too, and would change in Python alone"
            raise RefusedConstruct(node, f"{reason}; write {instead}")


def _assign(made: Statements, node: ast.Assign, scope: Scope, after: Step) -> Step:
    return made.assign(made.place(node.targets, scope), node.value, scope, after, node)


def _annotated(made: Statements, node: ast.AnnAssign, scope: Scope, after: Step) -> Step:
    if node.value is None:
        return after
    return made.assign(made.place([node.target], scope), node.value, scope, after, node)


def _augmented(made: Statements, node: ast.AugAssign, scope: Scope, after: Step) -> Step:
    read: Any = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
    value = ast.fix_missing_locations(ast.copy_location(ast.BinOp(read, node.op, node.value), node))
    if isinstance(node.target, ast.Name) and made.changes.may_be_in_place(node):
        made.check_changed(node, node.target.id, shown(ast.Assign([node.target], value, lineno=node.lineno)))
    return made.assign(made.place([node.target], scope), value, scope, after, node)


def _expression(made: Statements, node: ast.Expr, scope: Scope, after: Step) -> Step:
    value = node.value
    if isinstance(value, ast.Constant):
        return after
    changed = _changed_list(made, value)
    if changed is not None:
        name, joined = changed
        return made.assign(made.place([name], scope), joined, scope, after, node)
    return made.assign(lambda _: {}, value, scope, after, node)


def _changed_list(made: Statements, node: ast.expr) -> tuple[ast.Name, ast.expr] | None:
    """Return the list that append or extend changes, and its new value."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    owner, method = node.func.value, node.func.attr
    if method not in {"append", "extend"} or not isinstance(owner, ast.Name) or len(node.args) != 1:
        return None
    one = f"[{shown(node.args[0])}]" if method == "append" else shown(node.args[0])
    made.check_changed(node, owner.id, f"{owner.id} = {owner.id} + {one}")
    more: ast.expr = ast.List([node.args[0]], ast.Load())
    if method == "extend":
        more = list_of(node.args[0])
    joined = ast.BinOp(ast.Name(owner.id, ast.Load()), ast.Add(), more)
    return owner, ast.fix_missing_locations(ast.copy_location(joined, node))


def _if(made: Statements, node: ast.If, scope: Scope, after: Step) -> Step:
    """Make a Choice, with a rule for each `elif` whose condition calls no function."""
    yes = made.block(node.body, scope, after)
    branches = [(node.test, yes)]
    rest = node.orelse
    while len(rest) == 1 and isinstance(rest[0], ast.If) and not made.has_steps(rest[0].test, scope):
        branches.append((rest[0].test, made.block(rest[0].body, scope, after)))
        rest = rest[0].orelse
    no = made.block(rest, scope, after)

    def got(test: ast.expr) -> Step:
        step = Step(CHOICE, f"if {shown(node.test)}", node)
        tests = [test, *[made.pure(one, scope) for one, _ in branches[1:]]]
        step.rules = [Transition(condition(one), {}, target) for one, (_, target) in zip(tests, branches, strict=True)]
        step.next = no
        return made.caught(step, scope) if any(map(can_fail, tests)) else step

    return made.value(node.test, scope, got)


def _return(made: Statements, node: ast.Return, scope: Scope, after: Step) -> Step:  # noqa: ARG001 - nothing follows
    if node.value is None:
        step = Step(SUCCEED, "return", node)
        step.output = ast.Constant(None)
        return step
    return made.finish(node.value, scope, node)


def _assert(made: Statements, node: ast.Assert, scope: Scope, after: Step) -> Step:
    text = [] if node.msg is None else [node.msg]
    error = ast.Raise(ast.Call(ast.Name("AssertionError", ast.Load()), text, []), None)
    failed = raised(made, ast.fix_missing_locations(ast.copy_location(error, node)), scope)
    title = f"assert {shown(node.test)}"
    return made.value(node.test, scope, lambda test: made.choice(node, scope, test, after, failed, title))


def _pass(made: Statements, node: ast.Pass, scope: Scope, after: Step) -> Step:  # noqa: ARG001 - there is nothing to do
    return after


def _raise(made: Statements, node: ast.Raise, scope: Scope, after: Step) -> Step:  # noqa: ARG001 - nothing follows
    return raised(made, node, scope)


def _refused(made: Statements, node: ast.stmt, scope: Scope, after: Step) -> Step:  # noqa: ARG001 - always refused
    instead = INSTEAD.get(type(node), "do it in a function of the app")
    raise RefusedConstruct(node, f"this may not stand in a workflow; {instead}")


def _leave(made: Statements, node: ast.Break, scope: Scope, after: Step) -> Step:  # noqa: ARG001 - another step follows
    return scope.leave or after


def _again(made: Statements, node: ast.Continue, scope: Scope, after: Step) -> Step:  # noqa: ARG001 - likewise
    return scope.again or after


Maker = Callable[[Statements, Any, Scope, Step], Step]
STATEMENTS: dict[type, Maker] = {
    ast.AnnAssign: _annotated,
    ast.Assert: _assert,
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.Break: _leave,
    ast.Continue: _again,
    ast.Expr: _expression,
    ast.For: for_loop,
    ast.If: _if,
    ast.Pass: _pass,
    ast.Raise: _raise,
    ast.Return: _return,
    ast.Try: tried,
    ast.While: while_loop,
}


def started(made: Statements, function: ast.FunctionDef, defaults: dict[str, ast.expr], body: Step) -> Step:
    """Return the first step: it makes variables of the input."""
    if not made.names.parameters:
        return body
    taken: Assigned = {}
    given = states_part("input")
    for name in made.names.parameters:
        if name in defaults:
            get = ast.Attribute(given, "get", ast.Load())
            value: ast.expr = ast.Call(get, [ast.Constant(name), defaults[name]], [])
        else:
            value = ast.Subscript(given, ast.Constant(name), ast.Load())
        taken[made.names.variables[name]] = value
    title = f"{function.name}({', '.join(made.names.parameters)})"
    return made.passing(function, Scope(), taken, body, title)
