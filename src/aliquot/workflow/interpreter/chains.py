"""Chains in an execution: the states that were passed when several tasks have run in one sandbox."""

from typing import TYPE_CHECKING

from aliquot.workflow.interpreter.events import TaskEnded
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.interpreter.tokens import TaskPlace
from aliquot.workflow.language.records import ChainLink

if TYPE_CHECKING:
    from aliquot.workflow.interpreter.execution import Execution


def advance(run: "Execution", frame: Frame, event: TaskEnded) -> str:
    """Pass the states whose tasks have run in one sandbox, and return the last task.

    The frame then stands in the state of that task.

    A chain that failed stays in its first state, from where a redrive runs it again: its results are lost. No state of
    a chain handles errors, so the failure means the same in each of them.
    """
    before, task = frame.state, event.task
    place = TaskPlace(run.id, frame.entry, frame.attempt)
    for number, link in enumerate(frame.state.chain[: event.chained], 1):
        _note_passed(run, frame, before.name, task)
        before = frame.machine.states[link.state]
        task = place.chained(number)[0]
        _note_entered(run, frame, link, task)
    if event.error is None:
        frame.entry = run.next_entry(event.chained)
        frame.state, frame.attempt, frame.entered_at = before, 0, run.now
        frame.input = None  # it stayed in the sandbox
    return task


def _note_passed(run: "Execution", frame: Frame, state: str, task: str) -> None:
    run.note("TaskSucceeded", frame, lambda: {"task": task, "output": None})
    run.note("TaskStateExited", frame, lambda: {"name": state, "output": None})


def _note_entered(run: "Execution", frame: Frame, link: ChainLink, task: str) -> None:
    run.note("TaskStateEntered", frame, lambda: {"name": link.state, "input": None})
    run.note("TaskScheduled", frame, lambda: {"resource": link.resource, "task": task})
    run.note("TaskStarted", frame, lambda: {"resource": link.resource, "task": task})
