"""The JSON bodies of requests and responses about workflows and executions. Times are in ms since the epoch."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from aliquot.live.invocations.workflows.control import Description
from aliquot.live.store.executions import ExecutionRow

ExecutionStatus: TypeAlias = Literal["RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"]
ExecutionName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[\w.@-]+$")]
MAX_TIMEOUT_S = 31_536_000.0  # a year
Timeout: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)]
Token: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1000)]
MAX_ERROR_LENGTH, MAX_CAUSE_LENGTH = 256, 32_768
ErrorName: TypeAlias = Annotated[str, Meta(max_length=MAX_ERROR_LENGTH)]
Cause: TypeAlias = Annotated[str, Meta(max_length=MAX_CAUSE_LENGTH)]


class ExecutionPost(Struct, forbid_unknown_fields=True):
    """A new execution. `timeout` is in seconds, and ends it with States.Timeout."""

    input: Any = UNSET
    name: ExecutionName | UnsetType = UNSET
    timeout: Timeout | UnsetType = UNSET


class ExecutionId(Struct, rename="camel"):
    execution_id: str


class ExecutionItem(Struct, rename="camel"):
    """An execution in a list. `end` is null while it runs."""

    execution_id: str
    workflow: str
    name: str
    status: ExecutionStatus
    start: int
    end: int | None


class StandingState(Struct, rename="camel"):
    """A state in which an execution stands. `task` is the activation of its task, `index` that of an iteration."""

    state: str
    attempt: int
    since: str
    waits: str
    task: str | UnsetType = UNSET
    index: int | UnsetType = UNSET


class ExecutionView(ExecutionItem, rename="camel"):
    """An execution: its input, its output or error and cause, and the states in which it stands.

    `device_time` is how long its tasks have run, in ms, and `devices` has the same for each device.
    """

    input: Any
    redrives: int
    states: list[StandingState]
    device_time: float
    devices: dict[str, float]
    output: Any = UNSET
    error: str | UnsetType | None = UNSET
    cause: str | UnsetType | None = UNSET
    definition: str | UnsetType = UNSET


class ExecutionCount(Struct):
    executions: int


class HistoryView(Struct, rename="camel"):
    """A page of a history, with AWS's event types. `next` is the `after` of the next page, if there is one."""

    events: list[dict[str, Any]]
    next: int | UnsetType = UNSET


class StopPost(Struct, forbid_unknown_fields=True):
    error: ErrorName = ""
    cause: Cause = ""


class SuccessPost(Struct, forbid_unknown_fields=True):
    """The output of a task that waits for a callback."""

    token: Token
    output: Any = None


class FailurePost(Struct, forbid_unknown_fields=True):
    """The failure of a task that waits for a callback."""

    token: Token
    error: ErrorName = "Task.Failed"
    cause: Cause = ""


class HeartbeatPost(Struct, forbid_unknown_fields=True):
    token: Token


class CheckPost(Struct, forbid_unknown_fields=True):
    """A definition to check, as an object or as its text."""

    definition: str | dict[str, Any]


class ComplaintView(Struct):
    """A mistake in a definition, or a warning. `state` is empty for fields of the definition itself."""

    state: str
    field: str
    reason: str
    warning: bool


class CheckView(Struct):
    valid: bool
    complaints: list[ComplaintView]


def execution_item(row: ExecutionRow) -> ExecutionItem:
    return ExecutionItem(row.id, row.workflow, row.name, row.status, row.start, row.end)  # type: ignore[arg-type]


def execution_view(found: Description) -> ExecutionView:
    row, outcome = found.row, found.outcome
    return ExecutionView(
        *(row.id, row.workflow, row.name, row.status, row.start, row.end),  # type: ignore[arg-type]
        input=found.input,
        redrives=outcome.redrives,
        states=[StandingState(**state) for state in found.states],
        device_time=round(sum(outcome.device_ms.values()), 3),
        devices=outcome.device_ms,
        output=outcome.output,
        error=outcome.error,
        cause=outcome.cause,
    )
