"""Commands: the output of an execution, performed by its shell."""

from typing import TypeAlias

from msgspec import Struct

from aliquot.workflow.interpreter.offers import ChainOffer
from aliquot.workflow.values import Value

RUNNING, SUCCEEDED, FAILED, TIMED_OUT, ABORTED = "RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"


class RunTask(Struct, frozen=True, tag=True, omit_defaults=True):
    """Run an action or a workflow.

    `task` identifies this attempt, and is a hash of execution, entry and attempt. `key` is the same for all attempts
    of one entry into the state. `token` is set if the task waits for a callback. `until` is the time at which the
    execution gives the task up. The first tasks of `chain` may run after it, in the same sandbox. Then `TaskEnded`
    tells how many did.
    """

    task: str
    resource: str
    arguments: Value
    state: str
    attempt: int
    key: str
    token: str | None = None
    until: float | None = None
    chain: ChainOffer | None = None


class CancelTask(Struct, frozen=True, tag=True):
    """End a task whose result is no longer wanted."""

    task: str


class SetTimer(Struct, frozen=True, tag=True):
    """Report TimerDue at this time, instead of the time set before. None takes the timer back."""

    at: float | None


class Evaluate(Struct, frozen=True, tag=True, omit_defaults=True):
    """Evaluate a phase of a state beside the event loop (`evaluation.evaluate`)."""

    evaluation: int
    state: str
    phase: str
    input: Value
    variables: dict[str, Value]
    states: dict[str, Value]
    context: dict[str, Value]
    seed: str
    now: float


class Finish(Struct, frozen=True, tag=True, omit_defaults=True):
    """End the execution: it succeeded with an output, or ended with an error."""

    status: str
    output: Value = None
    error: str | None = None
    cause: str | None = None


Command: TypeAlias = RunTask | CancelTask | SetTimer | Evaluate | Finish
