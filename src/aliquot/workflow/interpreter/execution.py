"""An execution: a pure state machine with events in and commands out.

Frames that can go on stand in a queue. Each transition takes one frame, enters its state, and evaluates until the state
waits for something or is left. Then the frame is put into the queue again with its next state. A step makes a bounded
number of transitions, and goes on by a timer that is due at once, so that an endless loop cannot hold the event loop.
"""

from collections import deque
from collections.abc import Callable, Iterable

from aliquot.expressions.budget import measure
from aliquot.workflow.errors import DATA_LIMIT, QUERY_FAILED, RUNTIME, StateError
from aliquot.workflow.interpreter import commands, failures, forks, frames, tasks
from aliquot.workflow.interpreter.commands import Command, Evaluate, Finish, SetTimer
from aliquot.workflow.interpreter.context import context_object
from aliquot.workflow.interpreter.evaluation import CATCH, ENTER, LEAVE, phase_of, run_phase
from aliquot.workflow.interpreter.events import (
    Event,
    Started,
)
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.interpreter.handlers import HANDLERS
from aliquot.workflow.interpreter.timers import DELAY, RESUME, Timers
from aliquot.workflow.language.records import CHOICE, FAIL, MAP, PARALLEL, TASK, WAIT, Machine
from aliquot.workflow.query.languages import PYTHON
from aliquot.workflow.query.scope import MAX_STEPS_ON_THE_LOOP, TooLongError, Work
from aliquot.workflow.values import MAX_VARIABLES_SIZE, Value

MAX_TRANSITIONS_IN_A_STEP = 400
MAX_WORK_IN_A_STEP = 1000  # steps of queries, each of some microseconds
MAX_EVENTS = 100_000

Observer = Callable[[str, Frame, dict[str, Value]], None]
TimerTarget = tuple[str, Frame | None]


class Execution:
    """One run of a workflow. `observe` is called with each event of the history."""

    def __init__(self, machine: Machine, *, secret: bytes = b"", observe: Observer | None = None) -> None:
        self.machine = machine
        self.secret = secret
        self.observe = observe
        self.status = ""
        self.output: Value = None
        self.error: str | None = None
        self.cause: str | None = None
        self.started: Started | None = None
        self.started_at = 0.0
        self.redrives = 0
        self.device_ms: dict[str, float] = {}  # how long its tasks have run, by device
        self.now = 0.0
        self.events = 0  # of the history
        self.root: Frame | None = None
        self.commands: list[Command] = []
        self.timers: Timers[TimerTarget] = Timers()
        self.tasks = tasks.Tasks()
        self.evaluations: dict[int, Frame] = {}
        self._ready: deque[Frame] = deque()
        self.announced: float | None = None
        self.resuming = False
        self._entries = 0
        self._evaluated = 0
        self._work = 0  # of the queries since the last event

    def step(self, events: Iterable[Event], now: float) -> list[Command]:
        """Process events, and return the commands that follow.

        Started, StopAsked and RedriveAsked may be refused by EventRefusedError. Give each of them alone, so that no
        commands of other events are lost.
        """
        self.commands = []
        self.now = max(self.now, now)  # the clock may have been set back
        for event in events:
            self._work = 0
            HANDLERS[type(event)](self, event)
            self._drain()
        self._announce()
        return self.commands

    # The parts below are used by `tasks` and `forks`.

    @property
    def id(self) -> str:
        return self.started.execution if self.started else ""

    def note(self, kind: str, frame: Frame, details: Callable[[], dict[str, Value]]) -> None:
        """Count an event of the history, and tell the observer."""
        self.events += 1
        if self.observe is not None:
            self.observe(kind, frame, details())

    def next_entry(self, count: int = 1) -> int:
        """Count entries into states, and return the number of the last one."""
        self._entries += count
        return self._entries

    def ready(self, frame: Frame) -> None:
        """Let a frame enter its state."""
        frame.waits = frames.READY
        self._ready.append(frame)

    def set_timer(self, frame: Frame, at: float, kind: str) -> int:
        number = self.timers.add(at, (kind, frame))
        frame.timers.append(number)
        return number

    def clear_timers(self, frame: Frame) -> None:
        for number in frame.timers:
            self.timers.remove(number)
        frame.timers.clear()

    def leave(self, frame: Frame, result: Value) -> None:
        """Leave a state with its result."""
        frame.values = {"result": result}
        self.phase(frame, LEAVE)

    def fail(self, frame: Frame, error: StateError) -> None:
        """Handle the failure of a state."""
        failures.fail(self, frame, error)

    def finish(self, status: str, *, output: Value = None, error: str | None = None, cause: str | None = None) -> None:
        """End the execution. What still runs is cancelled, and no timer is left."""
        if self.root is not None and self.root.waits not in {frames.DONE, frames.FAILED}:
            forks.abort(self, self.root)
        self.status, self.output, self.error, self.cause = status, output, error, cause
        self.timers.clear()
        self._ready.clear()
        self.tasks.queued.clear()
        self.resuming = False
        self.note_end()
        self.commands.append(Finish(status, output, error, cause))

    def note_end(self) -> None:
        if self.root is not None:
            names = {
                commands.SUCCEEDED: "ExecutionSucceeded",
                commands.TIMED_OUT: "ExecutionTimedOut",
                commands.ABORTED: "ExecutionAborted",
            }
            ended = {"output": self.output} if self.status == commands.SUCCEEDED else {}
            kind = names.get(self.status, "ExecutionFailed")
            self.note(kind, self.root, lambda: ended or {"error": self.error, "cause": self.cause})

    # The parts below are private.

    def _drain(self) -> None:
        """Make transitions until no frame is ready, or the step has made enough."""
        ready = self._ready
        for _ in range(MAX_TRANSITIONS_IN_A_STEP):
            if not ready:
                return
            frame = ready.popleft()
            if frame.waits == frames.READY:  # it may have been aborted meanwhile
                self._enter(frame)
            if self._work > MAX_WORK_IN_A_STEP:
                break
        if ready and not self.resuming:
            self.resuming = True
            self.timers.add(self.now, (RESUME, None))

    def _enter(self, frame: Frame) -> None:
        state = frame.state
        frame.entry = self.next_entry()
        frame.attempt = 0
        frame.entered_at = self.now
        if frame.retries:
            frame.retries = {}
        self.events += 1
        if self.observe is not None:
            self.observe(f"{state.kind}StateEntered", frame, {"name": state.name, "input": frame.input})
        if self.events > MAX_EVENTS:
            self.finish(commands.FAILED, error=RUNTIME, cause=f"The execution has more than {MAX_EVENTS} events")
            return
        self.phase(frame, LEAVE if state.enter is None else ENTER)

    def phase(self, frame: Frame, name: str) -> None:
        """Evaluate a phase of the state, here or beside the event loop."""
        frame.phase = name
        phase = phase_of(frame.state, name)
        if phase.passes is not None:
            made_name, part = phase.passes
            self.made(frame, {made_name: frame.values.get(part, frame.input)})
            return
        states = {"input": frame.input, **frame.values}

        def seed() -> str:
            return f"{self.id}/{frame.entry}/{frame.attempt}/{name}"

        if not phase.slow:
            work = Work(MAX_STEPS_ON_THE_LOOP)

            def context() -> dict[str, Value]:
                return context_object(self, frame)

            try:
                made = run_phase(phase, frame.input, frame.variables, states, context, seed, self.now, work)
            except StateError as error:
                self.note_failed_evaluation(frame, error)
                self.fail(frame, error)
                return
            except TooLongError:
                pass
            else:
                self._work += work.spent
                self.made(frame, made)
                return
            self._work += work.spent
        self._evaluated += 1
        frame.waits, frame.evaluation = frames.EVALUATION, self._evaluated
        self.evaluations[self._evaluated] = frame
        self.commands.append(
            Evaluate(
                self._evaluated,
                frame.state.name,
                name,
                frame.input,
                dict(frame.variables),
                states,
                context_object(self, frame),
                seed(),
                self.now,
            )
        )

    def note_failed_evaluation(self, frame: Frame, error: StateError) -> None:
        details = {"error": error.error, "cause": error.cause, "state": frame.state.name}
        if error.error == QUERY_FAILED or frame.state.language == PYTHON:
            self.note("EvaluationFailed", frame, lambda: details)

    def made(self, frame: Frame, made: dict[str, Value]) -> None:
        """Go on with what a phase has made."""
        if frame.phase == ENTER:
            ENTERED[frame.state.kind](self, frame, made)
            return
        state = frame.state
        if frame.phase == LEAVE:
            target = state.targets[made["rule"]] if state.kind == CHOICE else state.next
        else:
            target = state.catchers[int(frame.phase.removeprefix(CATCH))].next
        assigned = made.get("assign")
        if assigned:
            variables = {**frame.variables, **assigned}
            if measure(variables, MAX_VARIABLES_SIZE) > MAX_VARIABLES_SIZE:
                reason = f"The variables have more than {MAX_VARIABLES_SIZE} characters of JSON"
                self.fail(frame, StateError(DATA_LIMIT, reason))
                return
            frame.variables = variables
        frame.values = {}
        frame.fork = None
        output = made["output"]
        self.events += 1
        if self.observe is not None:
            self.observe(
                f"{state.kind}StateExited", frame, {"name": state.name, "output": output, "assigned": assigned}
            )
        if target is not None:
            frame.state = frame.machine.states[target]
            frame.input = output
            frame.waits = frames.READY
            self._ready.append(frame)
        elif frame.parent is None:
            frame.waits = frames.DONE
            self.finish(commands.SUCCEEDED, output=output)
        else:
            frame.waits = frames.DONE
            forks.done(self, frame, output)

    def _announce(self) -> None:
        at = self.timers.earliest()
        if at != self.announced:
            self.announced = at
            self.commands.append(SetTimer(at))


def _enter_wait(run: Execution, frame: Frame, made: dict[str, Value]) -> None:
    frame.waits = frames.TIMER
    run.set_timer(frame, made["until"], DELAY)


def _enter_fail(run: Execution, frame: Frame, made: dict[str, Value]) -> None:
    run.fail(frame, StateError(made.get("error", ""), made.get("cause", "")))


ENTERED: dict[str, Callable[[Execution, Frame, dict[str, Value]], None]] = {
    TASK: tasks.start,
    WAIT: _enter_wait,
    FAIL: _enter_fail,
    PARALLEL: forks.start_parallel,
    MAP: forks.start_map,
}
