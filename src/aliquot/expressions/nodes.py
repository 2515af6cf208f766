"""Compilers of the simple nodes: constants, names, operators, subscripts, displays and f-strings."""

import ast
import re
from collections.abc import Callable

from aliquot.expressions.budget import COMPARABLE, EvaluationError, Value
from aliquot.expressions.closures import Closure, Compiler, Evaluation, describe, refusal, text_key
from aliquot.expressions.operators import BINARY, COMPARISONS, UNARY

FORMAT = re.compile(r"[<>^]?[+]?0?\d{0,3}[,]?(\.\d{1,2})?[bdeEfgnsxX%]?")
STATES = "states"  # a record; its fields are written as attributes


def constant(compiler: Compiler, node: ast.Constant) -> Closure:
    value = node.value
    if value is not None and not isinstance(value, bool | int | float | str):
        raise refusal(node, f"{value!r} is no JSON value")
    return lambda evaluation: value


def name(compiler: Compiler, node: ast.Name) -> Closure:
    name = node.id
    if name.startswith("_"):
        if name not in compiler.bound:
            raise refusal(node, f"the name {name!r} begins with an underscore")
    elif name not in compiler.bound:
        compiler.free[name] = None

    def read(evaluation: Evaluation) -> Value:
        evaluation.budget.spend(1)
        try:
            return evaluation.names[name]
        except KeyError:
            raise EvaluationError(f"the name {name!r} has no value", "UnboundLocalError") from None

    return read


def binary(compiler: Compiler, node: ast.BinOp) -> Closure:
    run = BINARY.get(type(node.op))
    if run is None:
        raise refusal(node, f"the operator of {describe(node)} is not allowed")
    left, right = compiler.node(node.left), compiler.node(node.right)
    return lambda evaluation: run(evaluation.budget, left(evaluation), right(evaluation))


def unary(compiler: Compiler, node: ast.UnaryOp) -> Closure:
    run, operand = UNARY[type(node.op)], compiler.node(node.operand)
    return lambda evaluation: run(operand(evaluation))


def boolean(compiler: Compiler, node: ast.BoolOp) -> Closure:
    stop = isinstance(node.op, ast.Or)
    parts = compiler.nodes(node.values)

    def run(evaluation: Evaluation) -> Value:
        value = None
        for part in parts:
            value = part(evaluation)
            if bool(value) is stop:
                break
        return value

    return run


def compare(compiler: Compiler, node: ast.Compare) -> Closure:
    for kind, operand in zip(node.ops, node.comparators, strict=True):
        if isinstance(kind, ast.Is | ast.IsNot) and not (isinstance(operand, ast.Constant) and operand.value is None):
            raise refusal(node, "`is` compares with None alone; write ==")
    first = compiler.node(node.left)
    rest = [
        (COMPARISONS[type(kind)], compiler.node(part)) for kind, part in zip(node.ops, node.comparators, strict=True)
    ]

    def run(evaluation: Evaluation) -> Value:
        left = first(evaluation)
        held: Value = True
        for holds, part in rest:
            right = part(evaluation)
            evaluation.budget.compared(left, right)
            if not (held := holds(left, right)):
                return held
            left = right
        return held

    return run


def conditional(compiler: Compiler, node: ast.IfExp) -> Closure:
    test, then, otherwise = compiler.node(node.test), compiler.node(node.body), compiler.node(node.orelse)
    return lambda evaluation: then(evaluation) if test(evaluation) else otherwise(evaluation)


def subscript(compiler: Compiler, node: ast.Subscript) -> Closure:
    value = compiler.node(node.value)
    if isinstance(node.slice, ast.Slice):
        bounds = [
            compiler.node(part) if part else None for part in (node.slice.lower, node.slice.upper, node.slice.step)
        ]

        def cut(evaluation: Evaluation) -> Value:
            found = value(evaluation)
            if not isinstance(found, list | str):
                raise EvaluationError(f"a {type(found).__name__} has no slices", "TypeError")
            evaluation.budget.spend(len(found) >> 4)
            return found[slice(*[bound(evaluation) if bound else None for bound in bounds])]

        return cut
    key = compiler.node(node.slice)

    def index(evaluation: Evaluation) -> Value:
        found = value(evaluation)
        if not isinstance(found, list | dict | str):
            shown = f"a {type(found).__name__}" if type(found) in COMPARABLE else repr(found)
            raise EvaluationError(f"{shown} has no items in a workflow; a function can look into it", "TypeError")
        return found[key(evaluation)]

    return index


def attribute(compiler: Compiler, node: ast.Attribute) -> Closure:
    if not (isinstance(node.value, ast.Name) and node.value.id == STATES) or node.attr.startswith("_"):
        raise refusal(node, f"{describe(node)}: write [{node.attr!r}] to read a field of a value")
    record, field = compiler.node(node.value), node.attr

    def run(evaluation: Evaluation) -> Value:
        found = record(evaluation)
        if field not in found:
            raise EvaluationError(f"states.{field} has no value here, but {', '.join(found)}", "NameError")
        return found[field]

    return run


def new_list(compiler: Compiler, node: ast.List | ast.Tuple) -> Closure:
    parts = compiler.nodes(node.elts)
    return lambda evaluation: [part(evaluation) for part in parts]


def new_dict(compiler: Compiler, node: ast.Dict) -> Closure:
    pairs = [
        (compiler.node(key) if key else None, compiler.node(value))
        for key, value in zip(node.keys, node.values, strict=True)
    ]

    def run(evaluation: Evaluation) -> dict[str, Value]:
        made: dict[str, Value] = {}
        for key, value in pairs:
            if key is None:
                made.update(value(evaluation))
            else:
                made[text_key(key(evaluation))] = value(evaluation)
        return made

    return run


def text(compiler: Compiler, node: ast.JoinedStr) -> Closure:
    parts = compiler.nodes(node.values)
    return lambda evaluation: evaluation.budget.built("".join([part(evaluation) for part in parts]))


def formatted(compiler: Compiler, node: ast.FormattedValue) -> Closure:
    value = compiler.node(node.value)
    form = ""
    if node.format_spec is not None:
        spec = node.format_spec.values if isinstance(node.format_spec, ast.JoinedStr) else []
        form = "".join(part.value for part in spec if isinstance(part, ast.Constant) and isinstance(part.value, str))
        if not FORMAT.fullmatch(form) or not all(isinstance(part, ast.Constant) for part in spec):
            raise refusal(node, f"the format {form!r} is not allowed; write for example {{x:.2f}}")
    converters: dict[int, Callable[[Value], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}
    convert = converters.get(node.conversion)

    def run(evaluation: Evaluation) -> str:
        found = evaluation.budget.built(value(evaluation))
        return format(convert(found) if convert else found, form)

    return run
