"""The interpreter: an execution as a state machine, events in and commands out.

The log of an execution is the events that went in. State, history and description are views of a replay.
"""

from aliquot.workflow.interpreter.commands import CancelTask, Command, Evaluate, Finish, RunTask, SetTimer
from aliquot.workflow.interpreter.evaluation import evaluate
from aliquot.workflow.interpreter.events import (
    Evaluated,
    Event,
    RedriveAsked,
    Started,
    StopAsked,
    TaskBeat,
    TaskEnded,
    TimerDue,
)
from aliquot.workflow.interpreter.execution import Execution
from aliquot.workflow.interpreter.tokens import TaskPlace, read_token

__all__ = [
    "CancelTask",
    "Command",
    "Evaluate",
    "Evaluated",
    "Event",
    "Execution",
    "Finish",
    "RedriveAsked",
    "RunTask",
    "SetTimer",
    "Started",
    "StopAsked",
    "TaskBeat",
    "TaskEnded",
    "TaskPlace",
    "TimerDue",
    "evaluate",
    "read_token",
]
