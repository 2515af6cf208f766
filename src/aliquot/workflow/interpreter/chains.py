"""Chains in an execution: the tasks that may follow in a sandbox, and the states that were passed when they did."""

from typing import TYPE_CHECKING

from aliquot.workflow.interpreter.commands import ChainArgument, ChainedTask
from aliquot.workflow.interpreter.events import TaskEnded
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.interpreter.tokens import TaskPlace
from aliquot.workflow.language.records import ChainLink, ChainPart
from aliquot.workflow.language.resources import read_resource
from aliquot.workflow.values import Value

if TYPE_CHECKING:
    from aliquot.workflow.interpreter.execution import Execution


def offered(frame: Frame, place: TaskPlace) -> tuple[ChainedTask, ...]:
    """Return the tasks that may follow the task of a frame, with the values of variables in their arguments."""
    made: list[ChainedTask] = []
    for number, link in enumerate(frame.state.chain, 1):
        task = _task(frame, place, link, number)
        if task is None:  # its arguments fail, which its state tells when it is entered
            break
        made.append(task)
    while made and not made[-1].may_end:
        made.pop()
    return tuple(made)


def _task(frame: Frame, place: TaskPlace, link: ChainLink, number: int) -> ChainedTask | None:
    resource = read_resource(link.resource)
    task, key = place.chained(number)
    try:
        arguments = (
            None if link.arguments is None else {name: _argument(frame, part) for name, part in link.arguments.items()}
        )
    except (KeyError, IndexError, TypeError):
        return None
    name = resource.name if resource is not None else ""
    return ChainedTask(task, name, link.state, key, arguments, link.may_end)


def _argument(frame: Frame, part: ChainPart) -> ChainArgument:
    if part.step is not None:
        return ChainArgument(step=part.step, path=part.path)
    if not part.variable:
        return ChainArgument(part.value)
    value: Value = frame.variables[part.variable]
    for key in part.path:
        value = value[key]
    return ChainArgument(value)


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
