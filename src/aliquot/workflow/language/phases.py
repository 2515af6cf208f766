"""Build the phases of a state: the queries that run when it is entered, and when it is left.

In JSONPath data go through InputPath, Parameters, the work of the state, ResultSelector, ResultPath and OutputPath.
In the other languages they go through Arguments, the work, and Output.
"""

from collections.abc import Callable, Mapping

from aliquot.workflow.errors import QUERY_FAILED, RUNTIME, StateError
from aliquot.workflow.language.records import Phase
from aliquot.workflow.language.sources import Fields
from aliquot.workflow.query.languages import JSONPATH
from aliquot.workflow.query.scope import Scope
from aliquot.workflow.query.templates import Query, Run
from aliquot.workflow.values import Value, bounded, kind_of

RESULT_PARTS = ("input", "context", "result")
ERROR_PARTS = ("input", "context", "errorOutput")
INPUT = "input"
RESULT = "result"
ERROR_OUTPUT = "errorOutput"
Made = dict[str, Value]


def phase(run: Callable[[Scope], Made], *queries: Query | None) -> Phase:
    """Return a phase that runs some queries."""
    return Phase(run, any(query is not None and query.slow for query in queries))


def effective(fields: Fields) -> Run:
    """Return the query of the effective input: the input after InputPath."""
    query = fields.path("InputPath")
    return (lambda scope: scope.input) if query is None else query.run


def assigned(fields: Fields, parts: tuple[str, ...]) -> Query | None:
    """Return the query of Assign."""
    raw = fields.raw.get("Assign", {})
    if not isinstance(raw, dict):
        fields.complain("Assign", f"expected an object with a value for each variable, not {kind_of(raw)}")
        return None
    return fields.template("Assign", parts)


def enter_phase(fields: Fields, named: Mapping[str, Query | None], template: str) -> Phase:
    """Return the phase that makes the arguments, and other named values, when a state is entered."""
    start = effective(fields)
    arguments = fields.template(template)
    others = [(name, query.run) for name, query in named.items() if query is not None]
    make = arguments.run if arguments is not None else None
    plain = "InputPath" not in fields.raw

    def run(scope: Scope) -> Made:
        inner = scope if plain else scope.at(start(scope))
        made: Made = {"arguments": inner.input if make is None else make(inner)}
        for name, query in others:
            made[name] = query(inner)
        return made

    if plain and make is None and not others:
        return Phase(run, passes=("arguments", INPUT))
    return phase(run, arguments, *named.values())


def leave_phase(fields: Fields) -> Phase:
    """Return the phase that makes the output and the variables from the result of a state."""
    if fields.language != JSONPATH:
        return expression_leave(fields, RESULT_PARTS, RESULT)
    select = fields.template("ResultSelector")
    place = result_place(fields)
    output = fields.path("OutputPath")
    assign = assigned(fields, RESULT_PARTS)

    def run(scope: Scope) -> Made:
        result = scope.states[RESULT]
        selected = result if select is None else select.run(scope.at(result))
        placed = place(scope.input, selected)
        made: Made = {"output": placed if output is None else output.run(scope.at(placed))}
        if assign is not None:
            made["assign"] = assign.run(scope.at(result))
        return made

    if select is None and output is None and assign is None and "ResultPath" not in fields.raw:
        return Phase(run, passes=("output", RESULT))
    return phase(run, select, output, assign)


def result_place(fields: Fields) -> Callable[[Value, Value], Value]:
    """Return how ResultPath joins the raw input and a result."""
    if "ResultPath" not in fields.raw:
        return lambda root, value: value
    if fields.raw["ResultPath"] is None:
        return lambda root, value: root
    path = fields.reference("ResultPath")
    if path is None or not path.keys:
        return lambda root, value: value
    return lambda root, value: bounded(path.place(root, value))


def _left(output: Value, assign: Query | None, scope: Scope) -> Made:
    """Return what a state leaves behind: its output, and the variables that Assign makes in this scope."""
    return {"output": output} if assign is None else {"output": output, "assign": assign.run(scope)}


def expression_leave(fields: Fields, parts: tuple[str, ...], part: str) -> Phase:
    """Return the last phase of a state whose queries are expressions. Without Output it is the given part."""
    output = fields.template("Output", parts)
    assign = assigned(fields, parts)

    def run(scope: Scope) -> Made:
        return _left(scope.states[part] if output is None else output.run(scope), assign, scope)

    if output is None and assign is None:
        return Phase(run, passes=("output", part))
    return phase(run, output, assign)


def through_phase(fields: Fields) -> Phase:
    """Return the last phase of a state that passes its input on: Wait, Succeed, and Choice."""
    if fields.language != JSONPATH:
        return expression_leave(fields, ("input", "context"), "input")
    start = effective(fields)
    output = fields.path("OutputPath")
    assign = assigned(fields, ("input", "context"))
    if output is None and assign is None and "InputPath" not in fields.raw:
        return Phase(lambda scope: {"output": scope.input}, passes=("output", INPUT))

    def run(scope: Scope) -> Made:
        inner = scope.at(start(scope))
        return _left(inner.input if output is None else output.run(inner), assign, inner)

    return phase(run, output, assign)


def pass_phase(fields: Fields) -> Phase:
    """Return the only phase of a Pass state."""
    if fields.language != JSONPATH:
        return expression_leave(fields, ("input", "context"), "input")
    start = effective(fields)
    parameters = fields.template("Parameters")
    place = result_place(fields)
    output = fields.path("OutputPath")
    assign = assigned(fields, ("input", "context"))
    has_result, result = "Result" in fields.raw, fields.raw.get("Result")

    plain = "InputPath" not in fields.raw

    def run(scope: Scope) -> Made:
        inner = scope if plain else scope.at(start(scope))
        value = inner.input if parameters is None else parameters.run(inner)
        value = result if has_result else value
        placed = place(scope.input, value)
        left = placed if output is None else output.run(scope.at(placed))
        return {"output": left} if assign is None else _left(left, assign, scope.at(value))

    return phase(run, parameters, output, assign)


def catch_phase(fields: Fields) -> Phase:
    """Return the phase of a rule of Catch."""
    if fields.language != JSONPATH:
        return expression_leave(fields, ERROR_PARTS, ERROR_OUTPUT)
    place = result_place(fields)
    assign = assigned(fields, ERROR_PARTS)

    def run(scope: Scope) -> Made:
        error = scope.states[ERROR_OUTPUT]
        return _left(place(scope.input, error), assign, scope.at(error))

    return phase(run, assign)


def choose_phase(fields: Fields, rules: list[tuple[Query, Phase]], default: Phase | None) -> Phase:
    """Return the only phase of a Choice state: the position of the rule that holds, with its output and variables."""
    start = effective(fields)
    plain = "InputPath" not in fields.raw

    def run(scope: Scope) -> Made:
        inner = scope if plain else scope.at(start(scope))
        for position, (rule, leave) in enumerate(rules):
            held = rule.run(inner)
            if held is True:
                return {**leave.run(scope), "rule": position}
            if held is not False:
                reason = f"The condition of rule {position + 1} gave {kind_of(held)}, not true or false"
                raise StateError(QUERY_FAILED, reason)
        if default is None:
            raise StateError(RUNTIME, f"No rule of the state '{fields.state}' holds, and it has no Default")
        return {**default.run(scope), "rule": len(rules)}

    slow = any(leave.slow for _, leave in rules) or (default is not None and default.slow)
    return Phase(run, slow or any(rule.slow for rule, _ in rules))
