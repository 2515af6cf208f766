"""The log of an execution, cut after any event, replays to the same commands and the same end."""

import jsonata  # noqa: F401 - it changes the recursion limit, which hypothesis must see first
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from workflow_shell import SECRET, START, compiled, replayed
from workflow_strategies import ERRORS, VALUE, machines

from aliquot.workflow.describe import describe
from aliquot.workflow.history import replay_history
from aliquot.workflow.interpreter import (
    CancelTask,
    Evaluate,
    Execution,
    Finish,
    RedriveAsked,
    RunTask,
    SetTimer,
    Started,
    StopAsked,
    TaskBeat,
    TaskEnded,
    TimerDue,
    evaluate,
)

MAX_EVENTS_DRAWN = 60


class Chaos:
    """A shell that reports ends, heartbeats and timers in any order."""

    def __init__(self, definition):
        self.machine = compiled(definition)
        self.execution = Execution(self.machine, secret=SECRET)
        self.now = START
        self.log = []
        self.batches = []
        self.running = {}
        self.evaluations = []
        self.timer = None
        self.ended = []
        self.finished = None

    def send(self, event):
        self.log.append((self.now, event))
        commands = self.execution.step([event], self.now)
        self.batches.append(commands)
        for command in commands:
            if isinstance(command, RunTask):
                assert command.task not in self.running
                assert command.task not in self.ended, "a task runs again although its result is in the log"
                self.running[command.task] = command
            elif isinstance(command, CancelTask):
                del self.running[command.task]
            elif isinstance(command, SetTimer):
                self.timer = command.at
            elif isinstance(command, Evaluate):
                self.evaluations.append(evaluate(self.machine, command))
            elif isinstance(command, Finish):
                self.finished = command

    def drawn(self, draw):
        """Draw the next event, or None if nothing can happen any more."""
        choices = []
        for task, command in self.running.items():
            choices += [TaskEnded(task, {"x": 1}), TaskEnded(task, error=draw(st.sampled_from(ERRORS))), TaskBeat(task)]
            if command.token:
                choices += [TaskEnded(task, "answer", answered=True)] * 2
        choices += self.evaluations
        if self.timer is not None:
            choices += [TimerDue()] * 2
        if not choices:
            return None
        event = draw(st.sampled_from(choices))
        self.now += draw(st.sampled_from([0, 0, 0.5, 2]))
        if isinstance(event, TimerDue):
            self.now, self.timer = max(self.now, self.timer), None
        elif isinstance(event, TaskEnded):
            if event.answered or event.error or not self.running[event.task].token:
                del self.running[event.task]
                self.ended.append(event.task)
        elif event in self.evaluations:
            self.evaluations.remove(event)
        return event


@st.composite
def runs(draw):
    shell = Chaos(draw(machines(tasks=True)))
    shell.send(Started("run", VALUE))
    redrives = draw(st.integers(0, 1))
    stop_at = draw(st.sampled_from([None, None, None, 3, 8]))
    for number in range(MAX_EVENTS_DRAWN):
        if shell.finished is not None:
            if redrives == 0 or shell.finished.status == "SUCCEEDED":
                break
            redrives -= 1
            shell.finished = None
            shell.send(RedriveAsked())
        elif number == stop_at or (event := shell.drawn(draw)) is None:
            shell.send(StopAsked())
        else:
            shell.send(event)
    if shell.finished is None:
        shell.send(StopAsked())
    return shell


@given(runs())
def test_a_log_cut_after_any_event_replays_to_the_same_commands(shell):
    for cut in range(1, len(shell.log) + 1):
        execution, batches = replayed(shell.machine, shell.log[:cut])
        assert batches == shell.batches[:cut]
        # the execution that was cut goes on as the first one did
        rest = [execution.step([event], now) for now, event in shell.log[cut:]]
        assert rest == shell.batches[cut:]
        assert describe(execution) == describe(shell.execution)


@given(runs())
def test_an_ended_execution_leaves_no_timer_no_task_and_no_evaluation(shell):
    execution = shell.execution
    assert shell.finished is not None
    assert shell.timer is None
    assert len(execution.timers) == 0
    assert not execution.tasks.frames
    assert not execution.tasks.running
    assert not execution.evaluations
    awaited = [command for command in shell.running.values() if not command.token]
    assert not awaited


@given(runs())
def test_commands_and_events_survive_their_encoding(shell):
    for _, event in shell.log:
        assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event
    for batch in shell.batches:
        for command in batch:
            assert msgspec.json.decode(msgspec.json.encode(command), type=type(command)) == command


@given(runs())
def test_the_history_is_numbered_and_counted_as_the_execution_counts_it(shell):
    history = replay_history(shell.machine, shell.log, SECRET)
    assert [event["id"] for event in history] == list(range(1, len(history) + 1))
    assert all(event["previousEventId"] < event["id"] for event in history)
    assert len(history) == shell.execution.events
    entered = sum(event["type"].endswith("StateEntered") for event in history)
    exited = sum(event["type"].endswith("StateExited") for event in history)
    assert exited <= entered
