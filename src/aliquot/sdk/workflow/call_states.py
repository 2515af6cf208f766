"""States of calls: Task, Map, Parallel and Wait, by the kind of the call."""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aliquot.sdk.workflow import calls
from aliquot.sdk.workflow.calls import StepCall, callee, first_parameter
from aliquot.sdk.workflow.emission import template
from aliquot.sdk.workflow.here import wait_seconds
from aliquot.sdk.workflow.mistakes import RefusedConstruct, shown
from aliquot.sdk.workflow.names import Scope
from aliquot.sdk.workflow.options import read_seconds
from aliquot.sdk.workflow.pure import can_fail
from aliquot.sdk.workflow.steps import MAP, PARALLEL, TASK, WAIT, Step, list_of, states_part

if TYPE_CHECKING:
    from aliquot.sdk.workflow.values import Values

Finish = Callable[[Step, ast.expr], None]  # what a state's result is used for
CALLBACK = ".waitForTaskToken"


def _task(values: "Values", node: ast.Call, found: StepCall, scope: Scope, finish: Finish) -> Step:
    target = callee(found.function, values.names.module)
    bound = calls.bound_arguments(node, target, node.args, node.keywords)
    return _calling(values, node, scope, finish, (target.name, target.action), bound, target.fields)


def _calling(
    values: "Values",
    node: ast.Call,
    scope: Scope,
    finish: Finish,
    named: tuple[str, str],
    bound: dict[str, ast.expr],
    fields: dict[str, Any],
) -> Step:
    """Return the steps of a Task: those of its arguments, and its own. `named` is its title and its resource."""

    def got(arguments: list[ast.expr]) -> Step:
        made = {name: template(value) for name, value in zip(bound, arguments, strict=True)}
        step = Step(TASK, named[0], node, Resource=named[1], Arguments=made, **fields)
        finish(step, states_part("result"))
        return values.caught(step, scope)

    return values.many(list(bound.values()), scope, got)


def _answer(values: "Values", node: ast.Call, found: StepCall, scope: Scope, finish: Finish) -> Step:  # noqa: ARG001
    function = values.names.static(node.args[0], scope) if node.args else None
    if not calls.is_function(function):
        raise RefusedConstruct(node, "wait_for takes a function of an app, then its arguments: wait_for(ask, text)")
    target = callee(function, values.names.module)
    limits = {"timeout": "TimeoutSeconds", "heartbeat": "HeartbeatSeconds"}
    fields = dict(target.fields)
    words = [word for word in node.keywords if word.arg not in limits]
    for word in node.keywords:
        if word.arg in limits:
            try:
                fields[limits[word.arg]] = read_seconds(values.names.literal(word.value, scope), word.arg)
            except ValueError as error:
                raise RefusedConstruct(node, str(error)) from error
    bound = calls.bound_arguments(node, target, node.args[1:], words)
    named = (f"wait for {target.name}", f"{target.action}{CALLBACK}")
    return _calling(values, node, scope, finish, named, bound, fields)


def _parallel(values: "Values", node: ast.Call, found: StepCall, scope: Scope, finish: Finish) -> Step:  # noqa: ARG001
    if not node.args or node.keywords or any(isinstance(part, ast.Starred) for part in node.args):
        reason = "parallel takes calls, such as parallel(f(x), g(x)); for a list write [f(x) for x in xs]"
        raise RefusedConstruct(node, reason)
    step = Step(PARALLEL, "parallel", node)
    step.machines = [values.finish(part, scope.inside(), part) for part in node.args]
    finish(step, states_part("result"))
    return values.caught(step, scope)


def _each(values: "Values", node: ast.Call, found: StepCall, scope: Scope, finish: Finish) -> Step:
    target = callee(found.function)
    if len(node.args) != 1 or any(word.arg != "concurrency" for word in node.keywords):
        raise RefusedConstruct(node, f"write {target.name}.map(items, concurrency=8), or [{target.name}(x) for x in …]")
    fields = {}
    for word in node.keywords:
        fields["MaxConcurrency"] = values.names.literal(word.value, scope)
        if not isinstance(fields["MaxConcurrency"], int) or fields["MaxConcurrency"] < 1:
            raise RefusedConstruct(node, "concurrency takes a whole number from 1 on")

    def got(items: ast.expr) -> Step:
        step = Step(MAP, f"{target.name}.map", node, Items=template(list_of(items)), **fields)
        arguments = {first_parameter(node, target): template(states_part("input"))}
        if target.method:
            arguments["method"] = target.method
        step.machines = [Step(TASK, target.name, node, Resource=target.action, Arguments=arguments)]
        finish(step, states_part("result"))
        return values.caught(step, scope)

    return values.value(node.args[0], scope, got)


def _sleep(values: "Values", node: ast.Call, found: StepCall, scope: Scope, finish: Finish) -> Step:  # noqa: ARG001
    if len(node.args) != 1 or node.keywords:
        raise RefusedConstruct(node, "sleep takes a time, such as sleep('5m') or sleep(30)")

    def got(seconds: ast.expr) -> Step:
        written = template(seconds)
        if isinstance(seconds, ast.Constant):
            try:
                written = wait_seconds(seconds.value)
            except ValueError as error:
                raise RefusedConstruct(node, str(error)) from error
        step = Step(WAIT, shown(node), node, Seconds=written)
        finish(step, ast.Constant(None))
        return values.caught(step, scope) if can_fail(seconds) else step

    return values.value(node.args[0], scope, got)


CALLS: dict[str, Callable[["Values", ast.Call, StepCall, Scope, Finish], Step]] = {
    calls.RUN: _task,
    calls.EACH: _each,
    calls.BRANCHES: _parallel,
    calls.ANSWER: _answer,
    calls.DELAY: _sleep,
}
