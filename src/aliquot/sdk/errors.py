"""The exceptions of the SDK, by cause. An exception of a remote function is raised with its own type instead.

SdkError
├── UsageError       the caller's code: an invalid argument, a function that cannot be deployed
├── NoServerError    no platform is configured, or none answers there
├── KeyRefusedError  the platform does not know the key
├── NotFoundError    there is no such function or activation
├── RefusedError     the platform refuses the request, and says why
│   ├── Refused      the call cannot meet its deadline or its cost limit now; it says what would be accepted
│   └── BusyError    too many at once or in a minute, or the platform is stopping: later it may work
├── FunctionError    the function did not answer as it must: crashed, ran out of time or memory, does not import
├── ExecutionError   an execution of a workflow ended with an error that has no class here
├── RemoteError      the function raised, or returned, something that cannot be loaded in this process
└── PlatformError    the platform's own fault
"""

TYPE_CHECKING = False  # as in `typing`, whose names are no errors
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class SdkError(Exception):
    """The root of the tree. Everything that the function itself did not raise is an `SdkError`."""


class UsageError(SdkError, ValueError):
    """An argument is wrong. The text names it and says what it takes."""


class NoServerError(SdkError, ConnectionError):
    """No platform was found, or none answers. The text says where the SDK looked and how to start one."""


class KeyRefusedError(SdkError):
    """The key is wrong, or belongs to another platform."""


class NotFoundError(SdkError, LookupError):
    """The platform does not have the function or activation."""


class RefusedError(SdkError):
    """The platform refuses a request. `status` is that of HTTP, `transaction` finds the request in the server's log."""

    def __init__(self, text: str, *, status: int = 0, transaction: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.transaction = transaction


class Refused(RefusedError):  # noqa: N818 - an answer to the limits that the caller chose
    """The call cannot meet its deadline or its cost limit now. Nothing was started.

    `why` is deadline, cost, share, never or unknown. `offer` has the limits that would be accepted now, and `retry_ms`
    says when the same call may be. What the platform does not know is None.
    """

    def __init__(self, text: str, refused: "Mapping[str, Any]", *, status: int = 429, transaction: str = "") -> None:
        super().__init__(text, status=status, transaction=transaction)
        self.why = str(refused.get("why", ""))
        self.needs_ms: float | None = refused.get("needs_ms")
        self.earliest_ms: float | None = refused.get("earliest_ms")
        self.cost: float | None = refused.get("cost")
        self.offer: dict[str, float] = dict(refused.get("offer") or {})
        self.retry_ms: float | None = refused.get("retry_ms")


class BusyError(RefusedError):
    """The platform is busy. Nothing was started, so the call can be repeated."""


class FunctionError(SdkError):
    """The function did not answer as it must. `activation_id` finds its record and its logs."""

    def __init__(self, text: str, *, activation_id: str = "") -> None:
        super().__init__(text)
        self.activation_id = activation_id


class ExecutionError(FunctionError):
    """An execution ended with an error, such as States.Timeout, whose name is no class of Python or of the app."""

    def __init__(self, error: str, cause: str, execution: str) -> None:
        super().__init__(f"{error}: {cause}" if cause else error, activation_id=execution)
        self.error = error
        self.cause = cause


class RemoteError(FunctionError):
    """The function raised or returned something whose type is not here. The text is that of the function's side."""


class PlatformError(FunctionError):
    """The platform failed. The text and the activation say what happened, and are worth a report."""
