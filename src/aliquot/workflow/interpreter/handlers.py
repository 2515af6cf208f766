"""Handlers of the events of an execution, one for each kind."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from aliquot.workflow.errors import RUNTIME, TIMEOUT, EventRefusedError, StateError
from aliquot.workflow.interpreter import commands, forks, frames, tasks
from aliquot.workflow.interpreter.evaluation import ENTER, LEAVE
from aliquot.workflow.interpreter.events import (
    Evaluated,
    RedriveAsked,
    Started,
    StopAsked,
    TaskBeat,
    TaskEnded,
    TimerDue,
)
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.interpreter.timers import DELAY, EXECUTION_TIMEOUT, HEARTBEAT, RESUME

if TYPE_CHECKING:
    from aliquot.workflow.interpreter.execution import Execution


def on_started(run: "Execution", event: Started) -> None:
    if run.started is not None:
        raise EventRefusedError(f"the execution {run.id} has been started already")
    run.started, run.started_at, run.status = event, run.now, commands.RUNNING
    run.root = Frame(run.machine, event.input, {})
    run.note("ExecutionStarted", run.root, lambda: {"input": event.input})
    set_execution_timeout(run)
    run.ready(run.root)


def set_execution_timeout(run: "Execution") -> None:
    if run.machine.timeout_s is not None:
        run.timers.add(run.now + run.machine.timeout_s, (EXECUTION_TIMEOUT, None))


def on_evaluated(run: "Execution", event: Evaluated) -> None:
    frame = run.evaluations.pop(event.evaluation, None)
    if frame is None:
        return
    frame.evaluation = None
    if event.value is not None:
        run.made(frame, event.value)
    else:
        error = StateError(event.error or RUNTIME, event.cause)
        run.note_failed_evaluation(frame, error)
        run.fail(frame, error)


def on_timer(run: "Execution", event: TimerDue) -> None:
    run.announced = None
    while run.status == commands.RUNNING and (due := run.timers.pop_due(run.now)):
        number, (kind, frame) = due
        if kind == RESUME:
            run.resuming = False
            return  # the step goes on, and its next timer is due at once
        if frame is None:
            run.finish(commands.TIMED_OUT, error=TIMEOUT, cause="The execution took longer than TimeoutSeconds")
            return
        frame.timers.remove(number)
        if kind == DELAY and frame.waits == frames.RETRY:
            run.phase(frame, LEAVE if frame.state.enter is None else ENTER)
        elif kind == DELAY:
            run.leave(frame, frame.input)
        else:
            tasks.timed_out(run, frame, heartbeat=kind == HEARTBEAT)


def on_stop(run: "Execution", event: StopAsked) -> None:
    if run.status != commands.RUNNING:
        raise EventRefusedError(f"the execution {run.id} does not run: its status is {run.status or 'not started'}")
    run.finish(commands.ABORTED, error=event.error or None, cause=event.cause or None)


def on_redrive(run: "Execution", event: RedriveAsked) -> None:
    if run.root is None or run.status not in {commands.FAILED, commands.TIMED_OUT, commands.ABORTED}:
        reason = "only a failed, stopped or timed-out execution can be redriven"
        raise EventRefusedError(f"the status of the execution {run.id} is {run.status}; {reason}")
    run.status, run.error, run.cause = commands.RUNNING, None, None
    run.redrives += 1
    run.note("ExecutionRedriven", run.root, lambda: {"redriveCount": run.redrives})
    set_execution_timeout(run)
    forks.resume(run, run.root)


HANDLERS: dict[type, Callable[..., None]] = {
    Started: on_started,
    TaskEnded: tasks.ended,
    TaskBeat: tasks.beat,
    TimerDue: on_timer,
    Evaluated: on_evaluated,
    StopAsked: on_stop,
    RedriveAsked: on_redrive,
}
