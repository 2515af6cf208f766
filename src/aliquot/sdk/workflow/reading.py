"""Read the source of a function into a definition. Nothing of it runs, and nothing is passed to `eval`."""

import ast
import linecache
import os
from collections.abc import Callable
from typing import Any

from aliquot.sdk.workflow.emission import definition
from aliquot.sdk.workflow.mistakes import Mistake, RefusedConstruct, WorkflowRefusedError
from aliquot.sdk.workflow.names import Names, Scope, json_constant
from aliquot.sdk.workflow.statements import Statements, started
from aliquot.sdk.workflow.steps import SUCCEED, Step


def read_workflow(raw: Callable[..., Any], own: object, timeout_s: int | None) -> dict[str, Any]:
    """Return the definition of a function. Raises `WorkflowRefusedError` with all mistakes."""
    code = raw.__code__
    function = _source(raw)
    made = Statements(Names(function, raw.__globals__, own), function)
    made.mistakes += _parameters(function) + _generators(function)
    body = function.body
    documented = ast.get_docstring(function)
    end = Step(SUCCEED, "end", _last(function))
    end.output = ast.Constant(None)
    written: dict[str, Any] = {}
    try:
        first = made.block(body, Scope(), end)
        start = started(made, function, _defaults(raw), first)
        comment = documented.splitlines()[0] if documented else ""
        if not made.mistakes:
            written = definition(start, os.path.basename(code.co_filename), comment, timeout_s)
    except RefusedConstruct as refused:
        made.mistakes.append(refused.mistake)
    if made.mistakes:
        raise WorkflowRefusedError(raw.__name__, code.co_filename, made.mistakes)
    return written


def _source(raw: Callable[..., Any]) -> ast.FunctionDef:
    code = raw.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, raw.__globals__))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == raw.__name__:
            first = min([node.lineno, *[one.lineno for one in node.decorator_list]])
            if first == code.co_firstlineno:
                return node
    reason = "its source cannot be read; a workflow is defined in a file, and the file must not have changed since"
    raise WorkflowRefusedError(raw.__name__, code.co_filename, [Mistake(code.co_firstlineno, raw.__name__, reason)])


def _last(function: ast.FunctionDef) -> ast.AST:
    last = function.body[-1]
    return ast.Pass(lineno=last.end_lineno or last.lineno, col_offset=1000)


def _parameters(function: ast.FunctionDef) -> list[Mistake]:
    arguments = function.args
    wrong = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    reason = "the input of a workflow has a name for each value; write the parameters out"
    return [RefusedConstruct(one, reason).mistake for one in (*wrong, *arguments.posonlyargs)]


def _generators(function: ast.FunctionDef) -> list[Mistake]:
    """Refuse generators that no call consumes at once: in Python they can be read only once, later."""
    consumed = [part for node in ast.walk(function) if isinstance(node, ast.Call) for part in node.args]
    return [
        RefusedConstruct(node, "write a list: […]").mistake
        for node in ast.walk(function)
        if isinstance(node, ast.GeneratorExp) and node not in consumed
    ]


def _defaults(raw: Callable[..., Any]) -> dict[str, ast.expr]:
    """Return the defaults of the parameters, which are constants."""
    code = raw.__code__
    positional = code.co_varnames[: code.co_argcount]
    values: tuple[Any, ...] = getattr(raw, "__defaults__", None) or ()
    given = dict(zip(positional[len(positional) - len(values) :], values, strict=True))
    given |= getattr(raw, "__kwdefaults__", None) or {}
    made: dict[str, ast.expr] = {}
    for name, value in given.items():
        constant = json_constant(value)
        if constant is None:
            place = ast.arg(name, lineno=code.co_firstlineno, col_offset=0)
            raise RefusedConstruct(place, f"the default {value!r} is no JSON value")
        made[name] = constant
    return made
