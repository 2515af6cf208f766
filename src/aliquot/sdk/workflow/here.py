"""Steps of a workflow other than calls, as they run in this process when the workflow is called as plain Python."""

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from aliquot.sdk.errors import UsageError
from aliquot.sdk.workflow.options import read_seconds

P = ParamSpec("P")
R = TypeVar("R")

# Set while a workflow runs here. Then `f.map` calls the function here, too.
runs_here: ContextVar[bool] = ContextVar("a workflow runs in this process", default=False)


def sleep_for(seconds: float) -> None:
    time.sleep(seconds)


def sleep(duration: str | float) -> None:
    """Wait: `sleep("5m")`, `sleep(30)`. On the platform this is a Wait state, which keeps no process and no memory."""
    sleep_for(wait_seconds(duration))


def wait_seconds(duration: object) -> int:
    """Return the seconds of a wait, which are whole. Raises `UsageError`."""
    if duration == 0 and isinstance(duration, int | float):
        return 0
    return read_seconds(duration, "sleep")


def parallel(*values: Any) -> list[Any]:  # noqa: ANN401 - results of any functions
    """Return its arguments as a list. On the platform each argument is a branch, and all branches run at once."""
    if not values:
        raise UsageError("parallel: there is nothing to run; it takes calls, such as parallel(f(x), g(x))")
    return list(values)


def wait_for(
    function: Callable[..., Any],
    /,
    *args: Any,  # noqa: ANN401 - the function's own
    timeout: str | float | None = None,
    heartbeat: str | float | None = None,
    **kwargs: Any,  # noqa: ANN401 - the function's own
) -> Any:  # noqa: ANN401 - the answer
    """Call a function that passes its token on (`aliquot.task().token`), and wait until somebody answers the token.

    Here the result of the function is taken for the answer.
    """
    for name, value in (("timeout", timeout), ("heartbeat", heartbeat)):
        if value is not None:
            read_seconds(value, name)
    return function(*args, **kwargs)
