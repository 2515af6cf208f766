"""Calls in the source of a workflow: which of them are steps, and the arguments of a function by their names."""

import ast
import inspect
from typing import Any, NamedTuple

from aliquot.sdk.classes import ClassMethod
from aliquot.sdk.function import Function
from aliquot.sdk.workflow import here
from aliquot.sdk.workflow.mistakes import RefusedConstruct
from aliquot.sdk.workflow.names import Names, Scope
from aliquot.sdk.workflow.options import CallOptions

RUN, EACH, BRANCHES, DELAY, ANSWER = "run", "map", "parallel", "sleep", "wait_for"
BUILDING_BLOCKS = ((here.parallel, BRANCHES), (here.sleep, DELAY), (here.wait_for, ANSWER))


class StepCall(NamedTuple):
    """A call that is a state of its own: a Task, Map, Parallel or Wait."""

    kind: str
    function: Any = None  # a function, a workflow, or a function with options


class Callee(NamedTuple):
    """The action that a Task calls, and the fields that options give it."""

    name: str
    action: str
    raw: Any
    fields: dict[str, Any]
    method: str = ""  # of a class, which is one action with all its methods


def is_function(value: object) -> bool:
    from aliquot.sdk.workflow.decorator import Workflow

    return isinstance(value, Function | Workflow | CallOptions)


def step_call(node: ast.AST, names: Names, scope: Scope) -> StepCall | None:
    """Return what kind of step a node is, or None."""
    if not isinstance(node, ast.Call):
        return None
    found = names.static(node.func, scope)
    for block, kind in BUILDING_BLOCKS:
        if found is block:
            return StepCall(kind)
    if is_function(found):
        return StepCall(RUN, found)
    if isinstance(node.func, ast.Attribute) and node.func.attr != "options":
        owner = names.static(node.func.value, scope)
        if isinstance(owner, Function) and node.func.attr == "map":
            return StepCall(EACH, owner)
        if is_function(owner):
            name = callee(owner).name
            raise RefusedConstruct(node, f"write {name}(…): in a workflow every call of a function is a Task")
    return None


def has_steps(node: ast.AST, names: Names, scope: Scope) -> bool:
    """Return whether an expression calls a function, waits, or runs branches."""
    return any(step_call(part, names, scope) is not None for part in ast.walk(node))


def callee(function: Any, module: str = "") -> Callee:  # noqa: ANN401 - see StepCall
    """Return what a Task of a workflow in a module calls."""
    options = function.fields(module) if isinstance(function, CallOptions) else {}
    plain = function.function if isinstance(function, CallOptions) else function
    method = plain.method if isinstance(plain, ClassMethod) else ""
    return Callee(plain.name, plain.action, plain.raw, options, method)


def bound_arguments(
    node: ast.Call, target: Callee, arguments: list[ast.expr], words: list[ast.keyword]
) -> dict[str, ast.expr]:
    """Return the arguments of a call by the names of the function's parameters."""
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            raise RefusedConstruct(node, "write the arguments out; * is not read here")
    if any(word.arg is None for word in words):
        raise RefusedConstruct(node, "write the arguments out; ** is not read here")
    signature = inspect.signature(target.raw)
    try:
        bound = signature.bind(*arguments, **{str(word.arg): word.value for word in words})
    except TypeError as error:
        raise RefusedConstruct(node, f"{target.name}{signature}: {error}") from error
    made: dict[str, ast.expr] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
            reason = f"{target.name} takes {name} by its place alone; a Task gives arguments by their names"
            raise RefusedConstruct(node, reason)
        made |= value if kind == inspect.Parameter.VAR_KEYWORD else {name: value}
    if not target.method:
        return made
    if "method" in made:
        raise RefusedConstruct(node, f"{target.name} takes an argument 'method', which names the method; rename it")
    return {"method": ast.Constant(target.method), **made}


def first_parameter(node: ast.Call, target: Callee) -> str:
    """Return the name of the parameter that `map` fills."""
    placeholder = ast.Constant(None)
    return next(iter(bound_arguments(node, target._replace(method=""), [placeholder], [])))
