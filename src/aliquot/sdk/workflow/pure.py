"""Expressions without calls of functions: names are resolved, and the rest is checked by `aliquot.expressions`."""

import ast
import copy
from typing import Any, NoReturn

from aliquot.expressions.budget import ExpressionRefusedError
from aliquot.expressions.compiler import compile_tree
from aliquot.expressions.functions import FUNCTIONS, METHOD_NAMES
from aliquot.sdk.workflow.mistakes import RefusedConstruct
from aliquot.sdk.workflow.names import COMPREHENSIONS, MAX_CONSTANT_CHARACTERS, UNKNOWN, Names, Scope, json_constant

INSTEAD: dict[type, str] = {
    ast.Lambda: "write the expression in place, or put it into a function of the app",
    ast.NamedExpr: "assign the value in a line of its own",
    ast.Await: "write f(x) without await: a workflow waits for every call",
    ast.Yield: "return the whole result",
    ast.YieldFrom: "return the whole result",
    ast.Starred: "write the values out, or join lists with +",
    ast.Set: "sets are no JSON; write a list",
    ast.SetComp: "sets are no JSON; write a list",
}
METHODS_INSTEAD = {
    "clear": "assign a new list or dictionary",
    "format": "write an f-string",
    "insert": "write xs = xs[:i] + [x] + xs[i:]",
    "pop": "read the item, and write xs = xs[:-1]",
    "remove": "write xs = [x for x in xs if x != value]",
    "reverse": "write xs = xs[::-1]",
    "setdefault": "write d = {'key': value, **d}",
    "sort": "write xs = sorted(xs)",
    "update": "write d = {**d, **more}",
}
SAFE = (ast.Name, ast.Constant, ast.List, ast.Tuple, ast.BoolOp, ast.Compare, ast.Load)
SAFE_OPERATORS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.And, ast.Or, ast.Not, ast.UnaryOp)


def can_fail(expression: ast.expr) -> bool:
    """Return whether the evaluation of an expression may raise something."""
    return not all(isinstance(node, (*SAFE, *SAFE_OPERATORS)) for node in ast.walk(expression)) or any(
        isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not) for node in ast.walk(expression)
    )


def is_boolean(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Compare) or (
        isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not)
    )


def condition(expression: ast.expr) -> ast.expr:
    """Return an expression that gives true or false, as a rule of Choice needs it."""
    return expression if is_boolean(expression) else ast.Call(ast.Name("bool", ast.Load()), [expression], [])


def resolved(node: ast.expr, names: Names, scope: Scope) -> ast.expr:
    """Return a copy of an expression in which names are variables and constants. Refuses all others."""
    found: ast.expr = _Resolver(names, scope).visit(copy.deepcopy(node))
    ast.copy_location(found, node)
    ast.fix_missing_locations(found)
    try:
        compile_tree(found, "")
    except ExpressionRefusedError as error:
        raise RefusedConstruct(node, str(error).partition(": ")[2] or str(error)) from error
    return found


class _Resolver(ast.NodeTransformer):
    def __init__(self, names: Names, scope: Scope) -> None:
        self._names = names
        self._scope = scope
        self._inner: list[str] = []  # names of comprehensions in this expression

    def _refuse(self, node: ast.AST, reason: str) -> NoReturn:
        raise RefusedConstruct(node, reason)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for kind, instead in INSTEAD.items():
            if isinstance(node, kind):
                self._refuse(node, f"this may not stand in a workflow; {instead}")
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        name = node.id
        if name in self._inner:
            return node
        if name in self._scope.bound:
            return copy.deepcopy(self._scope.bound[name])
        if name in self._scope.errors:
            self._refuse(node, f"an error is no JSON value; write str({name}), or type({name}).__name__")
        if name in self._names.variables:
            return ast.copy_location(ast.Name(self._names.variables[name], node.ctx), node)
        return self._constant(node, self._names.static(node, self._scope))

    def _constant(self, node: ast.Name | ast.Attribute, value: Any) -> ast.AST:  # noqa: ANN401 - of the module
        if value is UNKNOWN:
            self._refuse(node, "there is no such name above the workflow, nor a local variable; define it above")
        made = json_constant(value)
        if made is None:
            kind = type(value).__name__
            self._refuse(node, f"a {kind} is no JSON value; only constants that JSON can hold may be named here")
        if len(repr(value)) > MAX_CONSTANT_CHARACTERS:
            self._refuse(node, "this constant is too long for a definition; let a function of the app return it")
        return ast.copy_location(made, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        error = self._error(node.value.args[0]) if _is_type_of(node) else None  # type: ignore[attr-defined]
        if error is not None:
            return _part(error, "Error")
        value = self._names.static(node, self._scope)
        if value is UNKNOWN:
            self._refuse(node, f"attributes are not read here; write […]['{node.attr}'] to read a field of a value")
        return self._constant(node, value)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        target = node.func
        if isinstance(target, ast.Attribute) and self._names.static(target, self._scope) is UNKNOWN:
            return self._method(node, target)
        if not isinstance(target, ast.Name) or target.id not in FUNCTIONS:
            self._refuse(node, self._not_callable(target))
        if target.id in self._names.variables or target.id in self._inner:
            self._refuse(node, f"{target.id} is a variable here, and cannot be called; rename it")
        if target.id == "str" and len(node.args) == 1 and (error := self._error(node.args[0])):
            return _part(error, "Cause")
        node.args = [self.visit(argument) for argument in node.args]
        for word in node.keywords:
            word.value = self.visit(word.value)
        return node

    def _method(self, node: ast.Call, target: ast.Attribute) -> ast.AST:
        if target.attr not in METHOD_NAMES:
            instead = METHODS_INSTEAD.get(target.attr, f"there are {', '.join(sorted(METHOD_NAMES))}")
            self._refuse(node, f"the method {target.attr} cannot be called in a workflow; {instead}")
        if node.keywords:
            self._refuse(node, "methods take no named arguments here; give them by their place")
        target.value = self.visit(target.value)
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def _not_callable(self, target: ast.expr) -> str:
        value = self._names.static(target, self._scope)
        if value is UNKNOWN:
            return "there is no such function above the workflow; define it above"
        if getattr(value, "__name__", "") == "sleep":
            return "this would hold a process; write aliquot.sleep"
        if getattr(value, "__module__", None) != self._names.module:
            known = f" The expressions of a workflow have {', '.join(FUNCTIONS)}"
            return f"this cannot be called in a workflow; call it in a function of the app.{known}"
        return "this is no function of an app; put @app.function over it, and it becomes a Task"

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        if (error := self._error(node.value)) and node.conversion in {-1, ord("s")}:
            node.value = _part(error, "Cause")
            return node
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        for key in node.keys:
            if isinstance(key, ast.Constant) and not isinstance(key.value, str):
                self._refuse(key, "the keys of JSON objects are text")
        return self.generic_visit(node)

    def _error(self, node: ast.expr) -> str | None:
        """Return the variable of an error that an expression names."""
        return self._scope.errors.get(node.id) if isinstance(node, ast.Name) else None

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - as in ast
        if not isinstance(node, COMPREHENSIONS) or isinstance(node, ast.SetComp):
            return super().visit(node)
        before = len(self._inner)
        for generator in node.generators:
            generator.iter = self.visit(generator.iter)
            self._inner += [part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)]
            generator.ifs = [self.visit(test) for test in generator.ifs]
        if isinstance(node, ast.DictComp):
            node.key, node.value = self.visit(node.key), self.visit(node.value)
        else:
            node.elt = self.visit(node.elt)
        del self._inner[before:]
        return node


def _is_type_of(node: ast.Attribute) -> bool:
    """Return whether an expression is `type(x).__name__`."""
    call = node.value
    return (
        node.attr == "__name__"
        and isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "type"
        and len(call.args) == 1
    )


def _part(variable: str, key: str) -> ast.expr:
    return ast.Subscript(ast.Name(variable, ast.Load()), ast.Constant(key), ast.Load())
