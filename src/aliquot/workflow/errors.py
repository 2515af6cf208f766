"""Errors of workflows.

WorkflowError
├── QueryRefusedError   a path, an expression or a template cannot be compiled
├── DefinitionError     a definition has mistakes; `complaints` lists all of them
├── EventRefusedError   an event does not fit the state of the execution
└── StateError          a state failed, with the name and the cause that Retry and Catch see
"""

from collections.abc import Sequence

RUNTIME = "States.Runtime"
TIMEOUT = "States.Timeout"
HEARTBEAT_TIMEOUT = "States.HeartbeatTimeout"
TASK_FAILED = "States.TaskFailed"
ALL = "States.ALL"
DATA_LIMIT = "States.DataLimitExceeded"
QUERY_FAILED = "States.QueryEvaluationError"
RESULT_PATH_FAILED = "States.ResultPathMatchFailure"
TOO_MANY_FAILURES = "States.ExceedToleratedFailureThreshold"


class WorkflowError(Exception):
    """The root of the errors of this package."""


class QueryRefusedError(WorkflowError):
    """A path, an expression or a template that cannot be compiled."""


class EventRefusedError(WorkflowError):
    """An event that does not fit the state of the execution. The execution is unchanged."""


class DefinitionError(WorkflowError):
    """A definition with mistakes."""

    def __init__(self, complaints: Sequence[object]) -> None:
        super().__init__("\n".join(map(str, complaints)))
        self.complaints = tuple(complaints)


class StateError(WorkflowError):
    """The failure of a state. `heartbeat` tells that a heartbeat was missed."""

    def __init__(self, error: str, cause: str = "", *, heartbeat: bool = False) -> None:
        super().__init__(f"{error}: {cause}")
        self.error = error
        self.cause = cause
        self.heartbeat = heartbeat
