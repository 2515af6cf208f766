"""A sandbox's states, what is said of one that is lost, and to whom."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aliquot.live.bodies.json_check import CheckResult
from aliquot.live.node.base import NestedRun, Outcome

if TYPE_CHECKING:
    from aliquot.live.node.local_sandbox import LocalSandbox

EXITED_IN_INIT = "The action did not initialize and exited unexpectedly."
EXITED = "The action did not produce a valid response and exited unexpectedly."
NOT_JSON = "The action did not produce a valid JSON or JSON Array response: {}"
OUT_OF_MEMORY = "The action exhausted its memory and was aborted."
NOTHING_RUNS = "nothing runs here that could call another function"
TIME = "The action exceeded its time limits of {} milliseconds."
TIME_IN_INIT = "The action exceeded its time limits of {} milliseconds during initialization."

# A sandbox's states: plain numbers, for they are looked at several times a call.
STARTING = 0  # being forked and initialised
IDLE = 1
RUNNING = 2
GONE = 3  # reported, or told to stop
CHECKING = 4  # it has answered, and its answer is being looked over


def error(text: str) -> bytes:
    return json.dumps({"error": text}, ensure_ascii=False).encode()


class SandboxListener(Protocol):
    """Who is told: the node."""

    def initialised(self, sandbox: "LocalSandbox", seconds: float, logs: tuple[str, ...]) -> None: ...
    def finished(self, sandbox: "LocalSandbox", outcome: Outcome) -> None: ...
    def lost(self, sandbox: "LocalSandbox", outcome: Outcome) -> None: ...
    def refused(self, sandbox: "LocalSandbox") -> None: ...
    def check_json(self, result: memoryview, answer: Callable[[CheckResult], None]) -> None: ...
    def began_inside(self, sandbox: "LocalSandbox", function: str) -> NestedRun | str: ...
    def ended_inside(self, sandbox: "LocalSandbox", outcome: Outcome) -> NestedRun | None: ...
