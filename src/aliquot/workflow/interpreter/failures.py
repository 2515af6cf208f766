"""The failure of a state: it is retried, or caught, or its machine fails."""

from typing import TYPE_CHECKING

from aliquot.workflow.errors import StateError
from aliquot.workflow.interpreter import commands, forks, frames
from aliquot.workflow.interpreter.errors import delay_s, matches
from aliquot.workflow.interpreter.evaluation import CATCH
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.interpreter.timers import DELAY
from aliquot.workflow.language.records import MAP, PARALLEL

if TYPE_CHECKING:
    from aliquot.workflow.interpreter.execution import Execution


def fail(run: "Execution", frame: Frame, error: StateError) -> None:
    """Handle the failure of a state: retry it, catch the error, or let the machine fail."""
    run.clear_timers(frame)
    state = frame.state
    if not frame.phase.startswith(CATCH):
        for number, retrier in enumerate(state.retriers):
            if matches(retrier.errors, error):
                retries = frame.retries.get(number, 0)
                if retries < retrier.max_attempts:
                    _retry(run, frame, number, delay_s(retrier, retries, f"{run.id}/{frame.entry}/{frame.attempt}"))
                    return
                break
        if state.kind in {PARALLEL, MAP}:
            details = {"error": error.error, "cause": error.cause}
            run.note(f"{state.kind}StateFailed", frame, lambda: details)
        for number, catcher in enumerate(state.catchers):
            if matches(catcher.errors, error):
                frame.fork = None
                frame.values = {"errorOutput": {"Error": error.error, "Cause": error.cause}}
                run.phase(frame, f"{CATCH}{number}")
                return
    frame.waits = frames.FAILED
    if frame.parent is None:
        run.finish(commands.FAILED, error=error.error or None, cause=error.cause or None)
    else:
        forks.failed(run, frame, error)


def _retry(run: "Execution", frame: Frame, number: int, delay: float) -> None:
    frame.retries[number] = frame.retries.get(number, 0) + 1
    frame.attempt += 1
    frame.fork = None
    frame.values = {}
    frame.waits = frames.RETRY
    run.set_timer(frame, run.now + delay, DELAY)
