"""The description of an execution: its status, and where it stands."""

from aliquot.workflow.interpreter import frames
from aliquot.workflow.interpreter.commands import RUNNING
from aliquot.workflow.interpreter.execution import Execution
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.times import format_time
from aliquot.workflow.values import Value

WAITS = {
    frames.READY: "its turn",
    frames.TASK: "the end of its task",
    frames.CALLBACK: "an answer to its token",
    frames.QUEUED: "other tasks of the execution to end",
    frames.TIMER: "a time",
    frames.RETRY: "the time of its next attempt",
    frames.FORK: "its branches or iterations",
    frames.EVALUATION: "the value of an expression",
}


def describe(execution: Execution) -> dict[str, Value]:
    """Return status, input, output or error, and the states in which the execution stands."""
    started = execution.started
    made: dict[str, Value] = {
        "execution": execution.id,
        "name": started.name if started else "",
        "workflow": started.workflow if started else "",
        "status": execution.status,
        "started": format_time(execution.started_at),
        "input": started.input if started else None,
        "redrives": execution.redrives,
        "events": execution.events,
    }
    if execution.status == RUNNING and execution.root is not None:
        made["stands"] = stands(execution.root)
    elif execution.error is not None or execution.cause is not None:
        made["error"], made["cause"] = execution.error, execution.cause
    else:
        made["output"] = execution.output
    return made


def stands(frame: Frame) -> list[dict[str, Value]]:
    """Return the states that a frame, and the frames inside it, stand in."""
    if frame.waits not in WAITS:
        return []
    made: dict[str, Value] = {
        "state": frame.state.name,
        "attempt": frame.attempt,
        "since": format_time(frame.entered_at),
        "waits": WAITS[frame.waits],
    }
    if frame.task is not None:
        made["task"] = frame.task
    if frame.item is not None:
        made["index"] = frame.item["Index"]
    inner = [frame.fork.frames[index] for index in frame.fork.frames] if frame.fork is not None else []
    return [made, *(row for child in inner for row in stands(child))]
