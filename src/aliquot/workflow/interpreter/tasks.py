"""Task states: start, end, heartbeats, timeouts and callbacks. A bounded number of tasks is in flight at once."""

from collections import deque
from typing import TYPE_CHECKING

from aliquot.workflow.errors import RUNTIME, TIMEOUT, StateError
from aliquot.workflow.interpreter import chains, frames
from aliquot.workflow.interpreter.commands import CancelTask, RunTask
from aliquot.workflow.interpreter.events import TaskBeat, TaskEnded
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.interpreter.offers import ChainOffer
from aliquot.workflow.interpreter.timers import HEARTBEAT, STATE_TIMEOUT
from aliquot.workflow.interpreter.tokens import TaskPlace
from aliquot.workflow.language.resources import function_name
from aliquot.workflow.values import Value

if TYPE_CHECKING:
    from aliquot.workflow.interpreter.execution import Execution

MAX_TASKS_IN_FLIGHT = 256


class Tasks:
    """The tasks of an execution: those that run or await an answer, and those that wait for others to end."""

    def __init__(self) -> None:
        self.frames: dict[str, Frame] = {}
        self.running: dict[str, None] = {}
        self.queued: deque[tuple[Frame, int, dict[str, Value]]] = deque()


def start(run: "Execution", frame: Frame, made: dict[str, Value]) -> None:
    """Run the task of a state, or queue it if too many are in flight."""
    if len(run.tasks.running) >= MAX_TASKS_IN_FLIGHT:
        frame.waits = frames.QUEUED
        run.tasks.queued.append((frame, frame.entry, made))
        return
    resource = frame.state.resource
    name, arguments = (resource.name if resource else ""), made["arguments"]
    if resource is not None and resource.wrapped:
        target = arguments.get("FunctionName") if isinstance(arguments, dict) else None
        found = function_name(target) if isinstance(target, str) else None
        if found is None:
            run.fail(
                frame, StateError(RUNTIME, f"FunctionName must be the name or the ARN of a function, not {target!r}")
            )
            return
        name, arguments = found, arguments.get("Payload", {})
    place = TaskPlace(run.id, frame.entry, frame.attempt)
    frame.task, frame.waits = place.task(), frames.TASK
    run.tasks.frames[frame.task] = frame
    run.tasks.running[frame.task] = None
    until = None
    if made.get("timeout") is not None:
        until = run.now + made["timeout"]
        run.set_timer(frame, until, STATE_TIMEOUT)
    frame.heartbeat_s = made.get("heartbeat")
    if frame.heartbeat_s is not None:
        run.set_timer(frame, run.now + frame.heartbeat_s, HEARTBEAT)
    token = place.token(run.secret) if resource is not None and resource.callback else None
    links = frame.state.chain
    chain = ChainOffer(place, links, frame.variables) if links else None
    run.commands.append(
        RunTask(frame.task, name, arguments, frame.state.name, frame.attempt, place.key(), token, until, chain)
    )
    task = frame.task
    run.note("TaskScheduled", frame, lambda: {"resource": name, "parameters": arguments, "task": task})
    run.note("TaskStarted", frame, lambda: {"resource": name, "task": task})


def ended(run: "Execution", event: TaskEnded) -> None:
    """Take the end of a task. The end of a task that was given up is ignored, but for the time that it ran."""
    _count_times(run, event)
    frame = run.tasks.frames.get(event.task)
    if frame is None or frame.task is None:
        return
    resource = frame.state.resource
    awaited = resource is not None and resource.callback
    if event.answered and not awaited:
        return
    if awaited and not event.answered and event.error is None:
        if frame.waits == frames.TASK:
            frame.waits = frames.CALLBACK
            run.note("TaskSubmitted", frame, lambda: {"output": event.output, "task": event.task, **event.times()})
            _release(run, event.task)
        return
    give_up(run, frame)
    task = chains.advance(run, frame, event) if event.chained else event.task
    if event.error is not None:
        error = StateError(event.error, event.cause)
        failed = {"error": error.error, "cause": error.cause, "task": task}
        run.note("TaskFailed", frame, lambda: {**failed, **event.times()})
        run.fail(frame, error)
    else:
        run.note("TaskSucceeded", frame, lambda: {"output": event.output, "task": task, **event.times()})
        wrapped = resource is not None and resource.wrapped and not awaited
        output = {"ExecutedVersion": "$LATEST", "Payload": event.output, "StatusCode": 200} if wrapped else event.output
        run.leave(frame, output)
    _start_queued(run)


def _count_times(run: "Execution", event: TaskEnded) -> None:
    used = event.inner_ms or ({event.device: event.ran_ms} if event.device else {})
    for device, ran_ms in used.items():
        run.device_ms[device] = round(run.device_ms.get(device, 0) + ran_ms, 3)


def beat(run: "Execution", event: TaskBeat) -> None:
    """Take a heartbeat: the next one is due after the same time again."""
    frame = run.tasks.frames.get(event.task)
    if frame is None or frame.heartbeat_s is None:
        return
    number = frame.timers.pop()  # the timer of the heartbeat is the last one
    run.timers.remove(number)
    run.set_timer(frame, run.now + frame.heartbeat_s, HEARTBEAT)


def timed_out(run: "Execution", frame: Frame, *, heartbeat: bool) -> None:
    """End a task that has taken too long, or whose heartbeat was missed."""
    task = frame.task
    if task is not None:
        give_up(run, frame, cancel=True)
    cause = "The task sent no heartbeat in time" if heartbeat else "The task took longer than TimeoutSeconds"
    run.note("TaskTimedOut", frame, lambda: {"error": TIMEOUT, "cause": cause, "task": task})
    run.fail(frame, StateError(TIMEOUT, cause, heartbeat=heartbeat))
    _start_queued(run)


def give_up(run: "Execution", frame: Frame, *, cancel: bool = False) -> None:
    """Forget the task of a frame. A task that still runs can be cancelled."""
    task = frame.task
    if task is None:
        return
    run.clear_timers(frame)
    del run.tasks.frames[task]
    running = task in run.tasks.running
    run.tasks.running.pop(task, None)
    frame.task, frame.heartbeat_s = None, None
    if cancel and running:
        run.commands.append(CancelTask(task))


def _release(run: "Execution", task: str) -> None:
    run.tasks.running.pop(task, None)
    _start_queued(run)


def _start_queued(run: "Execution") -> None:
    """Start tasks that have waited for others to end."""
    queued = run.tasks.queued
    while queued and len(run.tasks.running) < MAX_TASKS_IN_FLIGHT:
        frame, entry, made = queued.popleft()
        if frame.waits == frames.QUEUED and frame.entry == entry:
            start(run, frame, made)
