"""Loops: a Choice that leads into the body or out of it. They run one turn after the other, as in Python."""

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from aliquot.sdk.workflow.mapping import targets_of
from aliquot.sdk.workflow.mistakes import shown
from aliquot.sdk.workflow.names import Names, Scope
from aliquot.sdk.workflow.steps import CHOICE, Step, Transition, join, list_of, variable
from aliquot.sdk.workflow.values import Place

if TYPE_CHECKING:
    from aliquot.sdk.workflow.statements import Statements


def unpacked(target: ast.Tuple | ast.List, names: Names) -> Place:
    """Return how a value is assigned to several names. As in Python, it must have as many parts."""
    variables = [names.variables[name] for name in targets_of(target)]

    def place(value: ast.expr) -> dict[str, ast.expr]:
        made: dict[str, ast.expr] = {}
        for name in variables:
            targets: list[ast.expr] = [ast.Name(one, ast.Store()) for one in variables]
            loop = ast.comprehension(ast.Tuple(targets, ast.Store()), ast.List([value], ast.Load()), [], 0)
            made[name] = ast.Subscript(ast.ListComp(variable(name), [loop]), ast.Constant(0), ast.Load())
        return made

    return place


def while_loop(made: "Statements", node: ast.While, scope: Scope, after: Step) -> Step:
    head = join(node)
    body = made.block(node.body, replace(scope, leave=after, again=head), head)
    otherwise = made.block(node.orelse, scope, after)
    if isinstance(node.test, ast.Constant) and node.test.value:
        head.next = body
    else:
        title = f"while {shown(node.test)}"
        head.next = made.value(node.test, scope, lambda test: made.choice(node, scope, test, body, otherwise, title))
    return head


def for_loop(made: "Statements", node: ast.For, scope: Scope, after: Step) -> Step:
    """Make a loop over a list: one variable has the list, another the position of the next item."""
    items, position = made.names.fresh(), made.names.fresh()
    head = Step(CHOICE, f"for {shown(node.target)} in {shown(node.iter)}", node)
    body = made.block(node.body, replace(scope, leave=after, again=head), head)
    place = made.place([node.target], scope)
    item = ast.Subscript(variable(items), variable(position), ast.Load())
    length = ast.Call(ast.Name("len", ast.Load()), [variable(items)], [])
    more = ast.Compare(variable(position), [ast.Lt()], [length])
    counted = {position: ast.BinOp(variable(position), ast.Add(), ast.Constant(1))}
    head.rules = [Transition(more, {**place(item), **counted}, body)]
    head.next = made.block(node.orelse, scope, after)
    if isinstance(node.target, ast.Tuple | ast.List):
        made.caught(head, scope)

    def got(value: ast.expr) -> Step:
        title = f"{shown(node.iter)} from the first on"
        return made.passing(node.iter, scope, {items: list_of(value), position: ast.Constant(0)}, head, title)

    return made.value(node.iter, scope, got)
