"""Comprehensions that call functions: a Map state, whose iterations run at once."""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from aliquot.sdk.workflow.emission import template
from aliquot.sdk.workflow.mistakes import RefusedConstruct, shown
from aliquot.sdk.workflow.names import Scope
from aliquot.sdk.workflow.pure import resolved
from aliquot.sdk.workflow.steps import MAP, PASS, Step, list_of, states_part

if TYPE_CHECKING:
    from aliquot.sdk.workflow.values import Values

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FIRST = " items"  # a name that no source can have, for the values of the first loop


def _result(node: Comprehension) -> ast.expr:
    """Return the value of the comprehension, from the results of the iterations."""
    result = states_part("result")
    if not isinstance(node, ast.DictComp):
        return result
    pair = ast.Tuple([ast.Name("key", ast.Store()), ast.Name("value", ast.Store())], ast.Store())
    loop = ast.comprehension(pair, result, [], 0)
    return ast.DictComp(ast.Name("key", ast.Load()), ast.Name("value", ast.Load()), [loop])


def targets_of(target: ast.expr) -> list[str]:
    """Return the names that a loop or a comprehension binds."""
    parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    if len(names) != len(parts):
        raise RefusedConstruct(target, "write plain names here; a field or a nested tuple is read in the lines below")
    return names


def mapped(values: "Values", node: Comprehension, scope: Scope, finish: Callable[[Step, ast.expr], None]) -> Step:
    """Return the Map state of a comprehension."""
    _check(values, node, scope)
    first = node.generators[0]

    def got(items: ast.expr) -> Step:
        names = list(dict.fromkeys(name for loop in node.generators for name in targets_of(loop.target)))
        single = len(node.generators) == 1 and isinstance(first.target, ast.Name)
        step = Step(MAP, shown(node), node, Items=template(_items(values, node, scope, items, names, single=single)))
        bound = {
            name: states_part("input")
            if single
            else ast.Subscript(states_part("input"), ast.Constant(position), ast.Load())
            for position, name in enumerate(names)
        }
        step.machines = [_iteration(values, node, scope.inside(), bound)]
        finish(step, _result(node))
        return values.caught(step, scope)

    return values.value(first.iter, scope, got)


def _check(values: "Values", node: Comprehension, scope: Scope) -> None:
    if isinstance(node, ast.SetComp):
        raise RefusedConstruct(node, "sets are no JSON; write a list")
    for position, loop in enumerate(node.generators):
        inner = [*loop.ifs, *([loop.iter] if position else [])]
        if loop.is_async or any(values.has_steps(part, scope) for part in inner):
            reason = "call functions in the first part of a comprehension and in its first `in` alone; compute the rest"
            raise RefusedConstruct(node, f"{reason} before, for example in a comprehension of its own")


def _items(
    values: "Values", node: Comprehension, scope: Scope, items: ast.expr, names: list[str], *, single: bool
) -> ast.expr:
    """Return the items of the Map state: the values of the loop, or a list for each turn of several loops."""
    first = node.generators[0]
    if single and not first.ifs:
        whole: ast.expr = list_of(ast.Name(FIRST, ast.Load()))
    else:
        parts: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
        start = ast.comprehension(first.target, ast.Name(FIRST, ast.Load()), first.ifs, 0)
        whole = ast.ListComp(parts[0] if single else ast.List(parts, ast.Load()), [start, *node.generators[1:]])
    ast.copy_location(whole, node)
    return resolved(ast.fix_missing_locations(whole), values.names, scope.with_bound({FIRST: items}))


def _iteration(values: "Values", node: Comprehension, scope: Scope, bound: dict[str, ast.expr]) -> Step:
    """Return the first step of an iteration."""
    if isinstance(node, ast.DictComp):
        element: ast.expr = ast.copy_location(ast.List([node.key, node.value], ast.Load()), node)
    else:
        element = node.elt
    alone = isinstance(element, ast.Call) and not any(
        values.has_steps(part, scope) for part in [*element.args, *[word.value for word in element.keywords]]
    )
    if alone and values.has_steps(element, scope):  # one Task, whose arguments read the item itself
        return values.finish(element, scope.with_bound(bound), element)
    variables = {name: values.names.fresh() for name in bound}
    inner = scope.with_bound({name: ast.Name(variables[name], ast.Load()) for name in bound})
    step = Step(PASS, f"for {', '.join(bound)}", node)
    step.assign = {variables[name]: value for name, value in bound.items()}
    step.next = values.finish(element, inner, element)
    return step
