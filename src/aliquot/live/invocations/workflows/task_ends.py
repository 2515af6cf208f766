"""The ends of tasks: from the outcome of a call, or of an execution inside another, to the event of the machine."""

import msgspec
from msgspec import Struct

from aliquot.core.places import place_text
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.workflows.objects import Held, read_container, read_result
from aliquot.live.invocations.workflows.records import read_outcome
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.executions import ExecutionRow
from aliquot.workflow.errors import DATA_LIMIT
from aliquot.workflow.interpreter import Finish, TaskEnded
from aliquot.workflow.interpreter.commands import SUCCEEDED
from aliquot.workflow.values import MAX_VALUE_SIZE, Value

ERROR, TIMEOUT, CRASHED, LOST = "Function.Error", "Function.Timeout", "Function.Crashed", "Function.Lost"
REFUSED = "Function.Refused"
MAX_CAUSE_CHARACTERS = 32_768  # as on AWS

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class TaskEnd(Struct, frozen=True):
    """The end of a task, with the objects of its output by id."""

    event: TaskEnded
    held: Held = {}


def end_of_task(call: Call) -> TaskEnd:
    """Return the end of the task whose call has ended."""
    outcome = call.outcome
    if outcome is None:
        return TaskEnd(TaskEnded(call.id, error=REFUSED, cause=call.reason))
    if len(outcome.result) > MAX_VALUE_SIZE:
        cause = f"The result has {len(outcome.result)} bytes; a task of a workflow may return {MAX_VALUE_SIZE}"
        return TaskEnd(TaskEnded(call.id, error=DATA_LIMIT, cause=cause))
    held: Held = {}
    try:
        result = _decode(outcome.result)
        if outcome.pickled is not None and outcome.status is Status.SUCCESS:
            if call.resolved.workflow:
                found = read_container(call.id, outcome.pickled)
                return TaskEnd(_ended(call, found.value), found.held)
            found = read_result(call.id, result, outcome)
            result, held = found.value, found.held
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        return TaskEnd(TaskEnded(call.id, error=CRASHED, cause=f"The result cannot be read: {error}"))
    if outcome.status is Status.SUCCESS:
        return TaskEnd(_ended(call, _value_of(call.resolved, result)), held)
    name, cause = _error_of(outcome, result)
    return TaskEnd(_ended(call, error=name, cause=cause[:MAX_CAUSE_CHARACTERS]))


def _ended(call: Call, output: Value = None, error: str | None = None, cause: str = "") -> TaskEnded:
    """Return the event with where a call ran, how long it waited and how long it ran, if it was a function."""
    outcome, run = call.outcome, call.run
    if outcome is None or not run.place:
        return TaskEnded(call.id, output, error, cause)
    ran_ms = round(outcome.run_s * 1000, 3)
    device = place_text(run.place)
    return TaskEnded(call.id, output, error, cause, device=device, waited_ms=run.wait_ms, ran_ms=ran_ms)


def end_of_child(task: str, finish: Finish, pickled: bytes | memoryview | None, device_ms: dict[str, float]) -> TaskEnd:
    """Return the end of a task that was an execution of its own. `pickled` has its output, if that has objects."""
    used = device_ms or None
    if finish.status != SUCCEEDED:
        error = finish.error or f"Execution.{finish.status}"
        return TaskEnd(TaskEnded(task, error=error, cause=finish.cause or "", inner_ms=used))
    if pickled is None:
        return TaskEnd(TaskEnded(task, finish.output, inner_ms=used))
    try:
        found = read_container(task, pickled)
    except ValueError as error:
        return TaskEnd(TaskEnded(task, error=CRASHED, cause=f"The output cannot be read: {error}"))
    return TaskEnd(TaskEnded(task, found.value, inner_ms=used), found.held)


def end_of_row(row: ExecutionRow, pickled: bytes | memoryview | None) -> TaskEnd:
    """Return the end of a task that was an execution of its own, as it is stored."""
    outcome = read_outcome(row.outcome)
    return end_of_child(row.id, outcome.as_finish(row.status), pickled, outcome.device_ms)


def _value_of(resolved: ResolvedAction, result: Value) -> Value:
    """Return a result as the workflow sees it. A function of the SDK wraps what is no object."""
    wrapped = isinstance(result, dict) and list(result) == ["value"]
    return result["value"] if wrapped and (resolved.workflow or resolved.action.annotation("sdk") is True) else result


def _error_of(outcome: Outcome, result: Value) -> tuple[str, str]:
    """Return the name and the cause of a failure."""
    error = result.get("error") if isinstance(result, dict) else result
    text = error if isinstance(error, str) else _encode(error).decode()
    if outcome.timed_out:
        return TIMEOUT, text
    if outcome.status is Status.INTERNAL_ERROR:
        return LOST, text
    if outcome.status is Status.DEVELOPER_ERROR:
        return CRASHED, text
    if isinstance(error, dict) and isinstance(name := error.get("name"), str) and name:
        cause = next((error[key] for key in ("cause", "message") if isinstance(error.get(key), str)), text)
        return name, cause
    return ERROR, text
