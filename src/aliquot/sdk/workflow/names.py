"""Names in the source of a workflow: its variables, and the objects of the module that it may use."""

import ast
import builtins
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import Any

from aliquot.sdk.classes import ClassFunction, ClassInstance
from aliquot.sdk.function import Function
from aliquot.sdk.workflow.mistakes import RefusedConstruct
from aliquot.sdk.workflow.options import CallOptions, Retry
from aliquot.sdk.workflow.steps import Step

VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}", re.ASCII)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MAX_CONSTANT_CHARACTERS = 5000
UNKNOWN: Any = object()


@dataclass(frozen=True)
class Handler:
    """An `except` around a statement: the errors that it takes, where it leads, and the variable for the error."""

    names: tuple[str, ...]
    classes: tuple[type[BaseException], ...]
    target: Step
    variable: str


@dataclass(frozen=True)
class Scope:
    """The surroundings of a statement or an expression."""

    handlers: tuple[Handler, ...] = ()
    leave: Step | None = None  # where `break` leads
    again: Step | None = None  # where `continue` leads
    errors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # names of `except`: variables
    caught: str = ""  # the variable of the error that `raise` raises again
    bound: Mapping[str, ast.expr] = field(default_factory=lambda: MappingProxyType({}))  # names of comprehensions

    def inside(self) -> "Scope":
        """Return the scope of a machine inside this one. Its errors are errors of the state around it."""
        return Scope(errors=self.errors, bound=self.bound)

    def with_bound(self, bound: Mapping[str, ast.expr]) -> "Scope":
        return replace(self, bound={**self.bound, **bound})


class Names:
    """The variables of one workflow, and the globals of its module."""

    def __init__(self, function: ast.FunctionDef, module: Mapping[str, Any], own: object) -> None:
        self._module = module
        self.module = str(module.get("__name__", ""))
        self._own_name, self._own = function.name, own
        self.parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        self.parameters += [one.arg for one in function.args.kwonlyargs]
        names = dict.fromkeys([*self.parameters, *assigned_names(function.body)])
        self._taken = dict.fromkeys(names)
        self._count = 0
        self.variables = {name: name if _is_variable(name) else self.fresh() for name in names}

    def fresh(self) -> str:
        """Return a name that the source does not use."""
        while True:
            self._count += 1
            name = f"v{self._count}"
            if name not in self._taken:
                self._taken[name] = None
                return name

    def static(self, node: ast.expr, scope: Scope) -> Any:  # noqa: ANN401 - any object of the module
        """Return the object of the module that an expression names, or UNKNOWN."""
        if isinstance(node, ast.Name):
            if node.id in self.variables or node.id in scope.bound or node.id in scope.errors:
                return UNKNOWN
            if node.id == self._own_name:
                return self._own
            return self._module.get(node.id, getattr(builtins, node.id, UNKNOWN))
        if isinstance(node, ast.Attribute):
            owner = self.static(node.value, scope)
            if isinstance(owner, ModuleType | type | ClassInstance):
                return getattr(owner, node.attr, UNKNOWN)
        if isinstance(node, ast.Call):
            owner = self.static(node.func, scope)
            if isinstance(owner, ClassFunction):  # `Model()`, whose methods are functions
                return owner()
            return self._options(node, scope)
        return UNKNOWN

    def _options(self, node: ast.Call, scope: Scope) -> Any:  # noqa: ANN401 - a CallOptions, or UNKNOWN
        """Return the function with options that `f.options(…)` makes."""
        target = node.func
        if not isinstance(target, ast.Attribute) or target.attr != "options":
            return UNKNOWN
        function = self.static(target.value, scope)
        if not isinstance(function, Function):
            return UNKNOWN
        if node.args or any(word.arg not in {"retry", "timeout"} for word in node.keywords):
            raise RefusedConstruct(node, "options takes retry=Retry(…) and timeout='30s'")
        given = {str(word.arg): self.literal(word.value, scope) for word in node.keywords}
        try:
            return CallOptions(function, given.get("retry"), given.get("timeout"))
        except (TypeError, ValueError) as error:
            raise RefusedConstruct(node, str(error)) from error

    def literal(self, node: ast.expr, scope: Scope) -> Any:  # noqa: ANN401 - a value known before the workflow runs
        """Return the value of an option: a literal, a name of the module, or Retry with such arguments."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple):
            return [self.literal(part, scope) for part in node.elts]
        if isinstance(node, ast.Call) and self.static(node.func, scope) is Retry:
            if any(word.arg is None for word in node.keywords):
                raise RefusedConstruct(node, "name the arguments of Retry; ** is not read here")
            words = {str(word.arg): self.literal(word.value, scope) for word in node.keywords}
            try:
                return Retry(*[self.literal(part, scope) for part in node.args], **words)
            except (TypeError, ValueError) as error:
                raise RefusedConstruct(node, str(error)) from error
        found = self.static(node, scope)
        if found is UNKNOWN:
            reason = "an option is fixed when the workflow is deployed; write a literal, or a constant of the module"
            raise RefusedConstruct(node, reason)
        return found


def _is_variable(name: str) -> bool:
    return VARIABLE.fullmatch(name) is not None and name != "states"


class _Assigned(ast.NodeVisitor):
    """Collects the names that statements assign. Names of comprehensions are their own."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.names[node.id] = None

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for test in node.ifs:
            self.visit(test)


def assigned_names(body: list[ast.stmt]) -> list[str]:
    """Return the names that statements assign."""
    visitor = _Assigned()
    for statement in body:
        visitor.visit(statement)
    return list(visitor.names)


def json_constant(value: Any) -> ast.expr | None:  # noqa: ANN401 - any object of a module
    """Return a constant of the module as an expression, or None if it is no JSON value."""
    if value is None or isinstance(value, bool | int | float | str):
        plain = next((kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)), None)
        return ast.Constant(plain)
    if isinstance(value, list | tuple):
        parts = [json_constant(part) for part in value]
        return None if None in parts else ast.List([part for part in parts if part is not None], ast.Load())
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        values = [json_constant(part) for part in value.values()]
        if None not in values:
            keys: list[ast.expr | None] = [ast.Constant(key) for key in value]
            return ast.Dict(keys, [part for part in values if part is not None])
    return None
