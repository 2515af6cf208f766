"""Make the record of a state from its fields, by type."""

from collections.abc import Callable

from aliquot.workflow.errors import QUERY_FAILED, RUNTIME, StateError
from aliquot.workflow.language.mapping import map_phase
from aliquot.workflow.language.phases import Made, effective, enter_phase, leave_phase, pass_phase, phase, through_phase
from aliquot.workflow.language.records import (
    CHOICE,
    FAIL,
    MAP,
    PARALLEL,
    PASS,
    SUCCEED,
    TASK,
    WAIT,
    Phase,
    Resource,
    State,
)
from aliquot.workflow.language.resources import ACCEPTED, read_resource
from aliquot.workflow.language.rules import read_catchers, read_choices, read_retriers
from aliquot.workflow.language.sources import Fields, is_seconds, is_wait
from aliquot.workflow.query.languages import JSONPATH, is_expression
from aliquot.workflow.query.scope import Scope
from aliquot.workflow.times import parse_time
from aliquot.workflow.values import Value, kind_of

MAX_LABEL_CHARACTERS = 40


def make_state(fields: Fields) -> State:
    """Return the record of a state whose fields have been checked."""
    return MAKERS[fields.raw["Type"]](fields)


def _next(fields: Fields) -> str | None:
    target = fields.raw.get("Next")
    return target if isinstance(target, str) else None


def _comment(fields: Fields) -> str:
    return str(fields.raw.get("Comment", ""))


def _arguments(fields: Fields) -> str:
    """Return the name of the field with the arguments."""
    value = fields.raw.get("Arguments", {})
    if not isinstance(value, dict) and not is_expression(value):
        fields.complain("Arguments", f"expected an object or an expression in {{% %}}, not {kind_of(value)}")
    return "Parameters" if fields.language == JSONPATH else "Arguments"


def _working(fields: Fields, kind: str, enter: Phase, resource: Resource | None = None) -> State:
    """Return a state whose work may fail, so it has Retry and Catch: Task, Parallel, and Map."""
    return State(
        name=fields.state,
        kind=kind,
        language=fields.language,
        next=_next(fields),
        enter=enter,
        leave=leave_phase(fields),
        retriers=read_retriers(fields),
        catchers=read_catchers(fields),
        resource=resource,
        comment=_comment(fields),
    )


def _task(fields: Fields) -> State:
    source = fields.raw.get("Resource")
    resource = read_resource(source) if isinstance(source, str) else None
    if resource is None and "Resource" in fields.raw:
        fields.complain("Resource", f"expected {ACCEPTED}, not {source!r}")
    timeout = fields.value("TimeoutSeconds", is_seconds, "a positive integer")
    heartbeat = fields.value("HeartbeatSeconds", is_seconds, "a positive integer")
    limit: Value = fields.raw.get("TimeoutSeconds")
    beat: Value = fields.raw.get("HeartbeatSeconds")
    if is_seconds(limit) and is_seconds(beat) and beat >= limit:
        fields.complain("HeartbeatSeconds", f"must be smaller than TimeoutSeconds, which is {limit}")
    named = {"timeout": timeout, "heartbeat": heartbeat}
    return _working(fields, TASK, enter_phase(fields, named, _arguments(fields)), resource)


def _parallel(fields: Fields) -> State:
    return _working(fields, PARALLEL, enter_phase(fields, {}, _arguments(fields)))


def _map(fields: Fields) -> State:
    label = fields.raw.get("Label", "")
    if not isinstance(label, str) or len(label) > MAX_LABEL_CHARACTERS:
        fields.complain("Label", f"expected a string of at most {MAX_LABEL_CHARACTERS} characters")
    return _working(fields, MAP, map_phase(fields))


def _plain(kind: str, leave: Callable[[Fields], Phase]) -> Callable[[Fields], State]:
    def make(fields: Fields) -> State:
        return State(
            name=fields.state,
            kind=kind,
            language=fields.language,
            next=_next(fields),
            leave=leave(fields),
            catchers=read_catchers(fields),
            comment=_comment(fields),
        )

    return make


def _is_time(value: Value) -> bool:
    return isinstance(value, str) and parse_time(value) is not None


def _wait(fields: Fields) -> State:
    start = effective(fields)
    seconds = fields.value("Seconds", is_wait, "an integer from 0 on")
    timestamp = fields.value("Timestamp", _is_time, "a time like 2026-11-17T15:04:05Z")

    def run(scope: Scope) -> Made:
        inner = scope.at(start(scope))
        if seconds is not None:
            return {"until": scope.now + seconds.run(inner)}
        until = parse_time(timestamp.run(inner)) if timestamp is not None else None
        if until is None:
            raise StateError(
                RUNTIME if fields.language == JSONPATH else QUERY_FAILED, "The state has no time to wait for"
            )
        return {"until": until}

    return State(
        name=fields.state,
        kind=WAIT,
        language=fields.language,
        next=_next(fields),
        enter=phase(run, seconds, timestamp),
        leave=through_phase(fields),
        catchers=read_catchers(fields),
        comment=_comment(fields),
    )


def _choice(fields: Fields) -> State:
    choose, targets = read_choices(fields)
    return State(
        name=fields.state,
        kind=CHOICE,
        language=fields.language,
        leave=choose,
        catchers=read_catchers(fields),
        targets=targets,
        has_default="Default" in fields.raw,
        comment=_comment(fields),
    )


def _fail(fields: Fields) -> State:
    error, cause = fields.text("Error"), fields.text("Cause")

    def run(scope: Scope) -> Made:
        made: Made = {}
        if error is not None:
            made["error"] = error.run(scope)
        if cause is not None:
            made["cause"] = cause.run(scope)
        return made

    return State(
        name=fields.state,
        kind=FAIL,
        language=fields.language,
        enter=phase(run, error, cause),
        comment=_comment(fields),
    )


MAKERS: dict[str, Callable[[Fields], State]] = {
    TASK: _task,
    PASS: _plain(PASS, pass_phase),
    WAIT: _wait,
    CHOICE: _choice,
    SUCCEED: _plain(SUCCEED, through_phase),
    FAIL: _fail,
    PARALLEL: _parallel,
    MAP: _map,
}
