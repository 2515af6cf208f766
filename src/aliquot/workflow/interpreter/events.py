"""Events: the only input of an execution. Together with their times they are its log.

An event about a task or an evaluation that the execution has given up in the meantime is late but not wrong, and is
ignored.
"""

from typing import TypeAlias

from msgspec import Struct

from aliquot.workflow.values import Value


class Started(Struct, frozen=True, tag=True, omit_defaults=True):
    """The execution begins. `execution` is its id, `name` and `workflow` are shown in the context object."""

    execution: str
    input: Value = None
    name: str = ""
    workflow: str = ""


class TaskEnded(Struct, frozen=True, tag=True, omit_defaults=True):
    """A task has ended with an output, or with an error.

    A task that waits for a callback ends when it is `answered`. If its run fails first, it ends with that error.
    `chained` tasks have run after it in its sandbox, and the output or the error is that of the last one. A function
    has run on `device` for `ran_ms`, after it had waited for `waited_ms`. The tasks of an execution that was the task
    have run for `inner_ms`, by device.
    """

    task: str
    output: Value = None
    error: str | None = None
    cause: str = ""
    answered: bool = False
    chained: int = 0
    device: str = ""
    waited_ms: float = 0
    ran_ms: float = 0
    inner_ms: dict[str, float] | None = None

    def times(self) -> dict[str, Value]:
        """Return where and how long the task ran, for the history."""
        if not self.device:
            return {}
        return {"device": self.device, "waitedMs": self.waited_ms, "ranMs": self.ran_ms}


class TaskBeat(Struct, frozen=True, tag=True):
    """A task has sent a heartbeat."""

    task: str


class TimerDue(Struct, frozen=True, tag=True):
    """The time of the last SetTimer has come."""


class Evaluated(Struct, frozen=True, tag=True, omit_defaults=True):
    """An Evaluate command has been performed: the value, or the error."""

    evaluation: int
    value: dict[str, Value] | None = None
    error: str | None = None
    cause: str = ""


class StopAsked(Struct, frozen=True, tag=True, omit_defaults=True):
    """A user stops the execution."""

    error: str = ""
    cause: str = ""


class RedriveAsked(Struct, frozen=True, tag=True):
    """A user takes up a failed, stopped or timed-out execution where it ended."""


Event: TypeAlias = Started | TaskEnded | TaskBeat | TimerDue | Evaluated | StopAsked | RedriveAsked
