"""The states of a sandbox, the errors of one that is lost, and the listener to which it reports."""

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aliquot.live.bodies.json_check import CheckResult
from aliquot.live.node.base import NestedRun, Outcome, Status

if TYPE_CHECKING:
    from aliquot.live.node.local_sandbox import LocalSandbox

EXITED_IN_INIT = "The action did not initialize and exited unexpectedly."
EXITED = "The action did not produce a valid response and exited unexpectedly."
NOT_JSON = "The action did not produce a valid JSON or JSON Array response: {}"
OUT_OF_MEMORY = "The action exhausted its memory and was aborted."
NOTHING_RUNS = "nothing runs here that could call another function"
TIME = "The action exceeded its time limits of {} milliseconds."
IMPORTS_TIMED_OUT = (
    "The imports of the action ({}) exceeded its time limits of {} milliseconds during initialization. Raise its limit "
    "`timeout`, or declare fewer `imports`."
)
NOT_RELEASED = "The memory of {} was not released within {} s by sandboxes that were stopped. Call again."
TIME_IN_INIT = "The action exceeded its time limits of {} milliseconds during initialization."

_QUOTED_BYTES = 1024  # of a result that is not JSON

# Plain numbers, because a warm call compares them several times.
STARTING = 0  # being forked and initialised
IDLE = 1
RUNNING = 2
GONE = 3  # reported as lost, or told to stop
CHECKING = 4  # it has replied, and another process checks that the result is JSON
WAITING = 5  # a graph has a run that waits until another graph of its executor has run


class StartError(Exception):
    """A sandbox cannot be started. The status says whose fault it is, and the text says why."""

    def __init__(self, status: Status, text: str, *, timed_out: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.timed_out = timed_out


def error(text: str) -> bytes:
    return json.dumps({"error": text}, ensure_ascii=False).encode()


def open_or_empty(constant: tuple[str, str]) -> int:
    """Return a descriptor of a file, or of an empty one if it is gone. The sandbox checks its digest."""
    try:
        return os.open(constant[1], os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def not_json(result: bytes | memoryview) -> str:
    """Return the text for a result that is not JSON, with its beginning."""
    return NOT_JSON.format(bytes(result[:_QUOTED_BYTES]).decode(errors="replace"))


class SandboxListener(Protocol):
    """Receives the events of sandboxes: the node."""

    def initialised(self, sandbox: "LocalSandbox", seconds: float, logs: tuple[str, ...]) -> None: ...
    def finished(self, sandbox: "LocalSandbox", outcome: Outcome) -> None: ...
    def lost(self, sandbox: "LocalSandbox", outcome: Outcome) -> None: ...
    def refused(self, sandbox: "LocalSandbox") -> None: ...
    def taken_back(self, sandbox: "LocalSandbox", count: int) -> None: ...
    def check_json(
        self, sandbox: "LocalSandbox", result: memoryview, answer: Callable[[CheckResult], None]
    ) -> None: ...
    def began_inside(self, sandbox: "LocalSandbox", function: str) -> NestedRun | str: ...
    def ended_inside(self, sandbox: "LocalSandbox", outcome: Outcome) -> NestedRun | None: ...
