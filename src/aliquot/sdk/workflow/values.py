"""Expressions that call functions: each call becomes a state, in the order in which Python evaluates them.

The translation goes backwards: `value(node, scope, then)` calls `then` with the expression that remains when all calls
have been made, gets the step that follows, and returns the first step.
"""

import ast
import copy
from collections.abc import Callable

from aliquot.sdk.workflow.call_states import CALLS, Finish
from aliquot.sdk.workflow.calls import has_steps, step_call
from aliquot.sdk.workflow.exceptions import ALL
from aliquot.sdk.workflow.mapping import mapped
from aliquot.sdk.workflow.mistakes import RefusedConstruct, shown
from aliquot.sdk.workflow.names import COMPREHENSIONS, Names, Scope
from aliquot.sdk.workflow.pure import can_fail, condition, resolved
from aliquot.sdk.workflow.steps import CHOICE, PASS, Assigned, Step, Transition, join, states_part, variable

Then = Callable[[ast.expr], Step]
Place = Callable[[ast.expr], Assigned]


class Values:
    """Makes the states of expressions."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def pure(self, node: ast.expr, scope: Scope) -> ast.expr:
        return resolved(node, self.names, scope)

    def has_steps(self, node: ast.AST, scope: Scope) -> bool:
        return has_steps(node, self.names, scope)

    # --- states -------------------------------------------------------------------------------------------

    def caught(self, step: Step, scope: Scope) -> Step:
        """Let the handlers around a state take its errors."""
        for handler in scope.handlers:
            assign: Assigned = {handler.variable: states_part("errorOutput")} if handler.variable else {}
            step.catch.append(Transition(handler.names, assign, handler.target))
            if handler.names == (ALL,):
                break
        return step

    def passing(self, node: ast.AST, scope: Scope, assign: Assigned, after: Step | None, title: str = "") -> Step:
        """Return a Pass state that assigns values."""
        step = Step(PASS, title or shown(node), node)
        step.assign, step.next = assign, after
        return self.caught(step, scope) if any(can_fail(value) for value in assign.values()) else step

    def choice(self, node: ast.AST, scope: Scope, test: ast.expr, yes: Step, no: Step, title: str) -> Step:
        step = Step(CHOICE, title, node)
        step.rules, step.next = [Transition(condition(test), {}, yes)], no
        return self.caught(step, scope) if can_fail(test) else step

    # --- expressions --------------------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope, then: Then) -> Step:
        """Make the states of an expression, and go on with what remains of it."""
        if not self.has_steps(node, scope):
            return then(self.pure(node, scope))
        if isinstance(node, ast.IfExp | ast.BoolOp) or self._is_step(node, scope):
            name = self.names.fresh()
            after = join(node)
            first = self.assign(lambda value: {name: value}, node, scope, after)
            after.next = then(variable(name))
            return first
        return self._parts(node, scope, then)

    def _is_step(self, node: ast.expr, scope: Scope) -> bool:
        return isinstance(node, COMPREHENSIONS) or step_call(node, self.names, scope) is not None

    def assign(self, place: Place, node: ast.expr, scope: Scope, after: Step, origin: ast.AST | None = None) -> Step:
        """Assign the value of an expression to variables."""
        steps = self.has_steps(node, scope)
        if steps and isinstance(node, ast.IfExp):
            yes = self.assign(place, node.body, scope, after)
            no = self.assign(place, node.orelse, scope, after)
            title = f"if {shown(node.test)}"
            return self.value(node.test, scope, lambda test: self.choice(node, scope, test, yes, no, title))
        if steps and isinstance(node, ast.BoolOp):
            return self._boolean(place, node, scope, after)
        if steps and self._is_step(node, scope):

            def finish(step: Step, result: ast.expr) -> None:
                step.assign, step.next = place(result), after

            return self.step(node, scope, finish)
        return self.value(node, scope, lambda value: self.passing(origin or node, scope, place(value), after))

    def _boolean(self, place: Place, node: ast.BoolOp, scope: Scope, after: Step) -> Step:
        """Make the states of `and` and `or`: a part is reached only if those before it have not decided."""
        name = self.names.fresh()
        end = self.passing(node, scope, place(variable(name)), after)
        goes_on = isinstance(node.op, ast.And)
        following = end
        for position, part in reversed(list(enumerate(node.values))):
            decided = following
            if position < len(node.values) - 1:
                yes, no = (following, end) if goes_on else (end, following)
                decided = self.choice(part, scope, variable(name), yes, no, f"if {shown(part)}")
            following = self.assign(lambda value: {name: value}, part, scope, decided)
        return following

    def many(self, nodes: list[ast.expr], scope: Scope, then: Callable[[list[ast.expr]], Step]) -> Step:
        """Make the states of several expressions that are evaluated one after the other."""
        last = max((position for position, node in enumerate(nodes) if self.has_steps(node, scope)), default=-1)
        done: list[ast.expr] = []

        def go_on() -> Step:
            position = len(done)
            if position > last:
                return then([*done, *[self.pure(node, scope) for node in nodes[position:]]])
            node = nodes[position]

            def got(value: ast.expr) -> Step:
                if position == last or isinstance(value, ast.Name | ast.Constant):
                    done.append(value)
                    return go_on()
                name = self.names.fresh()  # evaluated before the calls that follow, as in Python
                done.append(variable(name))
                return self.passing(node, scope, {name: value}, go_on())

            return self.value(node, scope, got)

        return go_on()

    def _parts(self, node: ast.expr, scope: Scope, then: Then) -> Step:
        """Make the states of the parts of an expression, and put what remains of them in their places."""
        parts = self._ordered_parts(node, scope)

        def got(values: list[ast.expr]) -> Step:
            holes = {f" {position}": value for position, value in enumerate(values)}
            memo = {id(part): variable(hole) for part, hole in zip(parts, holes, strict=True)}
            return then(self.pure(copy.deepcopy(node, memo), scope.with_bound(holes)))

        return self.many(parts, scope, got)

    def _ordered_parts(self, node: ast.expr, scope: Scope) -> list[ast.expr]:
        """Return the parts of an expression in the order of their evaluation."""
        if isinstance(node, ast.Compare):
            if any(self.has_steps(part, scope) for part in node.comparators[1:]):
                raise RefusedConstruct(node, "write two comparisons with `and`, so that it is clear what is called")
            return [node.left, *node.comparators]
        if isinstance(node, ast.BinOp):
            return [node.left, node.right]
        if isinstance(node, ast.UnaryOp):
            return [node.operand]
        if isinstance(node, ast.List | ast.Tuple):
            return node.elts
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return [part for pair in pairs for part in pair if part is not None]
        if isinstance(node, ast.Subscript):
            cut = node.slice
            inner = [cut.lower, cut.upper, cut.step] if isinstance(cut, ast.Slice) else [cut]
            return [node.value, *[part for part in inner if part is not None]]
        if isinstance(node, ast.JoinedStr):
            return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        if isinstance(node, ast.Call):
            return self._call_parts(node)
        raise RefusedConstruct(node, "call the function in a line of its own, and use its result here")

    def _call_parts(self, node: ast.Call) -> list[ast.expr]:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in {"any", "all", "next"} and any(isinstance(part, ast.GeneratorExp) for part in node.args):
            raise RefusedConstruct(node, f"write {name}([…]) with a list: a workflow makes all of these calls at once")
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*receiver, *node.args, *[word.value for word in node.keywords]]

    # --- calls --------------------------------------------------------------------------------------------

    def step(self, node: ast.expr, scope: Scope, finish: Finish) -> Step:
        """Make the state of a call. `finish` says what its result is used for."""
        if isinstance(node, COMPREHENSIONS):
            return mapped(self, node, scope, finish)
        found = step_call(node, self.names, scope)
        if found is None or not isinstance(node, ast.Call):
            raise RefusedConstruct(node, "this is no call of a function")
        return CALLS[found.kind](self, node, found, scope, finish)

    def finish(self, node: ast.expr, scope: Scope, origin: ast.AST) -> Step:
        """End a machine with the value of an expression."""
        result = states_part("result")
        if self.has_steps(node, scope) and self._is_step(node, scope):

            def ended(step: Step, value: ast.expr) -> None:
                if ast.dump(value) != ast.dump(result):
                    step.output = value

            return self.step(node, scope, ended)

        def left(value: ast.expr) -> Step:
            step = Step(PASS, shown(origin), origin)
            step.output = value
            return self.caught(step, scope) if can_fail(value) else step

        return self.value(node, scope, left)
