"""Errors: `try` gives its handlers to the states of its body as Catch, and `raise` is a Fail, or leads to a handler."""

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from aliquot.sdk.workflow.emission import template
from aliquot.sdk.workflow.exceptions import ALL, is_exception, names_of
from aliquot.sdk.workflow.mistakes import RefusedConstruct, shown
from aliquot.sdk.workflow.names import Handler, Scope
from aliquot.sdk.workflow.steps import CHOICE, FAIL, Step, Transition, join, variable

if TYPE_CHECKING:
    from aliquot.sdk.workflow.statements import Statements


def tried(made: "Statements", node: ast.Try, scope: Scope, after: Step) -> Step:
    if node.finalbody:
        place = node.finalbody[0]
        made.mistakes.append(
            RefusedConstruct(
                place, "there is no finally; write these lines after the try, and into each except"
            ).mistake
        )
    otherwise = made.block(node.orelse, scope, after)
    handlers = [_handler(made, handler, scope, after) for handler in node.handlers]
    return made.block(node.body, replace(scope, handlers=(*handlers, *scope.handlers)), otherwise)


def _handler(made: "Statements", node: ast.ExceptHandler, scope: Scope, after: Step) -> Handler:
    classes = _classes(made, node, scope)
    name = made.names.fresh()
    if node.name in made.names.variables:
        raise RefusedConstruct(node, f"{node.name} is a variable of the workflow, too; give the error another name")
    errors = {**scope.errors, node.name: name} if node.name else scope.errors
    target = join(node)  # a handler without statements leads on
    target.next = made.block(node.body, replace(scope, errors=errors, caught=name), after)
    return Handler(names_of(classes, made.names.module), classes, target, name)


def _classes(made: "Statements", node: ast.ExceptHandler, scope: Scope) -> tuple[type[BaseException], ...]:
    if node.type is None:
        return (Exception,)
    parts = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    found = [made.names.static(part, scope) for part in parts]
    for part, kind in zip(parts, found, strict=True):
        if not is_exception(kind):
            raise RefusedConstruct(part, "except takes classes of exceptions that are defined above the workflow")
    return tuple(found)


def raised(made: "Statements", node: ast.Raise, scope: Scope) -> Step:
    """Return the step of `raise`."""
    again = node.exc is None or (isinstance(node.exc, ast.Name) and node.exc.id in scope.errors)
    if again:
        name = scope.errors[node.exc.id] if isinstance(node.exc, ast.Name) else scope.caught
        if not name:
            raise RefusedConstruct(node, "there is no error to raise again; say which, such as raise ValueError('…')")
        return _raised_again(made, node, name, scope)
    call = node.exc if isinstance(node.exc, ast.Call) else None
    kind = made.names.static(call.func if call else node.exc, scope)  # type: ignore[arg-type]
    if not is_exception(kind):
        raise RefusedConstruct(node, "raise takes a class of exceptions that is defined above the workflow")
    if _is_own(kind.__init__) or _is_own(kind.__str__):
        raise RefusedConstruct(node, f"{kind.__name__} has an __init__ or __str__ of its own; only its text is kept")
    arguments = call.args if call else []
    if len(arguments) > 1 or (call and call.keywords):
        raise RefusedConstruct(node, f"write one text, such as raise {kind.__name__}(f'…'); only that is kept")
    if not arguments:
        return _fail(made, node, kind, ast.Constant(""), scope)
    return made.value(arguments[0], scope, lambda text: _fail(made, node, kind, _as_text(text, kind), scope))


def _is_own(method: object) -> bool:
    return hasattr(method, "__code__")


def _as_text(value: ast.expr, kind: type[BaseException]) -> ast.expr:
    """Return the text of an exception, as str() gives it."""
    if issubclass(kind, KeyError):
        return ast.JoinedStr([ast.FormattedValue(value, ord("r"))])
    if isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        return value
    return ast.Call(ast.Name("str", ast.Load()), [value], [])


def _fail(made: "Statements", node: ast.Raise, kind: type[BaseException], text: ast.expr, scope: Scope) -> Step:
    for handler in scope.handlers:
        if issubclass(kind, handler.classes):
            error = ast.Dict([ast.Constant("Error"), ast.Constant("Cause")], [ast.Constant(kind.__name__), text])
            return made.passing(node, scope, {handler.variable: error}, handler.target)
    if scope.handlers and not isinstance(text, ast.Constant):  # the text itself may fail, and be caught
        name = made.names.fresh()
        fail = Step(FAIL, shown(node), node, Error=kind.__name__, Cause=template(variable(name)))
        return made.passing(node, scope, {name: text}, fail)
    return Step(FAIL, shown(node), node, Error=kind.__name__, Cause=template(text))


def _raised_again(made: "Statements", node: ast.Raise, name: str, scope: Scope) -> Step:
    """Raise the error of a variable: the handlers around it are asked for its name."""
    parts = {key: ast.Subscript(variable(name), ast.Constant(key), ast.Load()) for key in ("Error", "Cause")}
    step = Step(FAIL, shown(node), node, **{key: template(part) for key, part in parts.items()})
    for handler in reversed(scope.handlers):
        leads = made.passing(node, scope, {handler.variable: variable(name)}, handler.target)
        if handler.names == (ALL,):
            step = leads
            continue
        choice = Step(CHOICE, f"{shown(node)}: {', '.join(handler.names)}", node)
        known = ast.List([ast.Constant(one) for one in handler.names], ast.Load())
        choice.rules = [Transition(ast.Compare(parts["Error"], [ast.In()], [known]), {}, leads)]
        choice.next = step
        step = choice
    return step
