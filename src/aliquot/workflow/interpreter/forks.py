"""Parallel and Map states: start branches and iterations, take their ends, and abort and resume them."""

from typing import TYPE_CHECKING

from aliquot.workflow.errors import RUNTIME, TOO_MANY_FAILURES, StateError
from aliquot.workflow.interpreter import frames, tasks
from aliquot.workflow.interpreter.frames import Fork, Frame
from aliquot.workflow.language.records import MAP, PARALLEL
from aliquot.workflow.values import MAX_VARIABLES_SIZE, Value, bounded

MAX_AT_ONCE = 1000  # of iterations in a Map state without MaxConcurrency

if TYPE_CHECKING:
    from aliquot.workflow.interpreter.execution import Execution


def start_parallel(run: "Execution", frame: Frame, made: dict[str, Value]) -> None:
    """Start all branches of a Parallel state with the same input."""
    fork = Fork(frame, [made["arguments"]] * len(frame.state.branches))
    run.note("ParallelStateStarted", frame, dict)
    _begin(run, fork)


def start_map(run: "Execution", frame: Frame, made: dict[str, Value]) -> None:
    """Start the first iterations of a Map state."""
    fork = Fork(frame, made["inputs"])
    fork.items = made["items"]
    fork.limit = made.get("concurrency") or 0
    fork.tolerated = made.get("tolerated") or 0
    fork.percentage = made.get("percentage") or 0
    run.note("MapStateStarted", frame, lambda: {"length": len(fork.inputs)})
    _begin(run, fork)


def _begin(run: "Execution", fork: Fork) -> None:
    fork.frame.fork = fork
    fork.frame.waits = frames.FORK
    _start_more(run, fork)
    if not fork.inputs:
        _joined(run, fork)


def _start_more(run: "Execution", fork: Fork) -> None:
    """Start branches or iterations, up to the limit."""
    owner = fork.frame
    mapped = owner.state.kind == MAP
    limit = min(fork.limit or MAX_AT_ONCE, MAX_AT_ONCE)
    while fork.next < len(fork.inputs) and fork.active < limit:
        index = fork.next
        fork.next += 1
        fork.active += 1
        machine = owner.state.branches[0 if mapped else index]
        child = Frame(machine, fork.inputs[index], owner.variables, fork, index)
        child.noted = owner.noted
        if mapped and fork.items is not None:
            value = fork.items[index] if len(fork.items) == len(fork.inputs) else fork.inputs[index]
            child.item = {"Index": index, "Value": value}
        fork.frames[index] = child
        if mapped:
            details = {"name": owner.state.name, "index": index}
            run.note("MapIterationStarted", child, details.copy)
        run.ready(child)


def done(run: "Execution", frame: Frame, output: Value) -> None:
    """Take the output of a branch or an iteration."""
    fork = frame.parent
    if fork is None:
        return
    fork.results[frame.index] = output
    fork.active -= 1
    del fork.frames[frame.index]
    if fork.frame.state.kind == MAP:
        run.note("MapIterationSucceeded", frame, lambda: {"name": fork.frame.state.name, "index": frame.index})
    _went_on(run, fork)


def _went_on(run: "Execution", fork: Fork) -> None:
    _start_more(run, fork)
    if fork.next == len(fork.inputs) and not fork.active:
        _joined(run, fork)


def _joined(run: "Execution", fork: Fork) -> None:
    owner = fork.frame
    run.note(f"{owner.state.kind}StateSucceeded", owner, dict)
    try:
        results = bounded(fork.results, MAX_VARIABLES_SIZE)
    except StateError as error:
        run.fail(owner, error)
        return
    run.leave(owner, results)


def failed(run: "Execution", frame: Frame, error: StateError) -> None:
    """Take the failure of a branch or an iteration."""
    fork = frame.parent
    if fork is None:
        return
    owner = fork.frame
    fork.active -= 1
    if owner.state.kind == PARALLEL:
        _fail_owner(run, fork, error)
        return
    fork.failures += 1
    fork.results[frame.index] = {"Error": error.error, "Cause": error.cause}
    run.note("MapIterationFailed", frame, lambda: {"name": owner.state.name, "index": frame.index})
    if error.error != RUNTIME and fork.is_tolerated():
        _went_on(run, fork)
    elif error.error != RUNTIME and (fork.tolerated or fork.percentage):
        cause = f"{fork.failures} of {len(fork.inputs)} iterations failed, more than the state tolerates"
        _fail_owner(run, fork, StateError(TOO_MANY_FAILURES, cause))
    else:
        _fail_owner(run, fork, error)


def _fail_owner(run: "Execution", fork: Fork, error: StateError) -> None:
    for index in list(fork.frames):
        abort(run, fork.frames[index])
    run.fail(fork.frame, error)


def abort(run: "Execution", frame: Frame) -> None:
    """Stop a frame and all frames inside it. Where they stand is kept, so that they can be resumed."""
    if frame.waits in {frames.DONE, frames.FAILED, frames.ABORTED}:
        return
    if frame.fork is not None:
        for index in list(frame.fork.frames):
            abort(run, frame.fork.frames[index])
    tasks.give_up(run, frame, cancel=True)
    run.clear_timers(frame)
    if frame.evaluation is not None:
        run.evaluations.pop(frame.evaluation, None)
        frame.evaluation = None
    frame.values = {}
    frame.waits = frames.ABORTED
    if frame.parent is not None:
        frame.parent.active -= 1
    if frame.parent is not None and frame.parent.frame.state.kind == MAP:
        run.note("MapIterationAborted", frame, lambda: {"index": frame.index})


def resume(run: "Execution", frame: Frame) -> None:
    """Take a failed or aborted frame up: branches and iterations that succeeded keep their results."""
    frame.phase = ""
    frame.values = {}
    fork = frame.fork
    if fork is None:
        run.ready(frame)
        return
    frame.waits = frames.FORK
    frame.attempt = 0
    frame.retries = {}
    fork.failures = 0
    fork.active = len(fork.frames)
    for index in list(fork.frames):
        resume(run, fork.frames[index])
    _went_on(run, fork)
