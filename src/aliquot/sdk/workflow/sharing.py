"""Find the lists and dictionaries that may be changed in place.

The values of a workflow are copied, so a change in place is an assignment: `xs.append(x)` means `xs = xs + [x]`. In
Python two names can hold the same list, and both see the change. A change in place is therefore accepted only where no
other name can hold the list, so that plain Python and the graph have the same result.
"""

import ast

PASSES_ON = {"max", "min", "get"}  # functions and methods that return one of their arguments
NUMBERS = {"abs", "float", "int", "len", "round", "str", "sum", "bool"}


class InPlaceChanges:
    """The assignments of a function, and the names that are handed on whole."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._assigned: dict[str, list[ast.expr | None]] = {}
        self._shared: dict[str, None] = {}
        arguments = function.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self._assign(one.arg, None)
        for node in ast.walk(function):
            self._look_at(node)

    def allowed(self, name: str) -> bool:
        """Return whether a value of this name may be changed in place."""
        values = self._assigned.get(name, [])
        if values and all(value is not None and _is_number_or_text(value) for value in values):
            return True
        return name not in self._shared and all(value is not None and _is_new(value) for value in values)

    def may_be_in_place(self, node: ast.AugAssign) -> bool:
        """Return whether an augmented assignment may change a list that another name holds."""
        if isinstance(node.op, ast.Add) and _is_number(node.value):
            return False
        return isinstance(node.op, ast.Add | ast.Mult)  # lists have no other operators

    def is_dict(self, name: str) -> bool:
        """Return whether a name holds a dictionary wherever it is assigned."""
        values = self._assigned.get(name, [])
        return bool(values) and all(
            isinstance(value, ast.Dict | ast.DictComp)
            or (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict")
            for value in values
        )

    def _assign(self, name: str, value: ast.expr | None) -> None:
        self._assigned.setdefault(name, []).append(value)

    def _look_at(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(target, node.value if len(node.targets) == 1 else None)
            self._hand_on(node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._target(node.target, node.value)
            self._hand_on(node.value)
        elif isinstance(node, ast.For):
            self._target(node.target, None)
            self._hand_on(node.iter)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in {*PASSES_ON, "append", "extend"}:
                for argument in node.args:
                    self._hand_on(argument)
        elif isinstance(node, ast.AugAssign):
            self._hand_on(node.value)

    def _target(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._assign(target.id, value)
        elif isinstance(target, ast.Subscript):
            if value is not None:
                self._hand_on(value)
        else:
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    self._assign(part.id, None)

    def _hand_on(self, value: ast.expr) -> None:
        """Note the names whose values another place holds from now on."""
        if isinstance(value, ast.Name):
            self._shared[value.id] = None
        for part in _parts_handed_on(value):
            self._hand_on(part)


def _parts_handed_on(value: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression that its value is, or holds."""
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.BoolOp | ast.Dict):
        return value.values
    if isinstance(value, ast.List | ast.Tuple):
        return value.elts
    if isinstance(value, ast.ListComp | ast.GeneratorExp):
        return [value.elt]
    return [value.value] if isinstance(value, ast.DictComp) else []


def _is_new(value: ast.expr) -> bool:
    """Return whether the value is made by the expression itself."""
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name not in PASSES_ON
    if isinstance(value, ast.IfExp):
        return _is_new(value.body) and _is_new(value.orelse)
    new = ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.DictComp | ast.BinOp | ast.Constant | ast.JoinedStr
    return isinstance(value, new | ast.Compare | ast.UnaryOp)


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in NUMBERS - {"str"}
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod) or _is_number(value.left)
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float)
    return isinstance(value, ast.UnaryOp | ast.Compare)


def _is_number_or_text(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in NUMBERS
    if isinstance(value, ast.BinOp):
        return _is_number_or_text(value.left) and _is_number_or_text(value.right)
    return isinstance(value, ast.Constant | ast.JoinedStr | ast.Compare | ast.UnaryOp)
