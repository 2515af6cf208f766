"""A shell for executions in virtual time: it performs their commands, and keeps the log."""

from heapq import heappop, heappush

import msgspec

from aliquot.workflow.errors import StateError
from aliquot.workflow.interpreter import (
    CancelTask,
    Evaluate,
    Event,
    Execution,
    Finish,
    RunTask,
    SetTimer,
    Started,
    TaskEnded,
    TimerDue,
    evaluate,
)
from aliquot.workflow.language import read_definition

START = 1_700_000_000.0
SECRET = b"a secret of the tests"


class NeverEndsError(Exception):
    """The execution waits for something that never comes."""


def compiled(definition):
    machine, complaints = read_definition(definition)
    assert machine is not None, "\n".join(map(str, complaints))
    return machine


class Shell:
    """Runs one execution. `functions` maps the name of a resource to what runs: `function(arguments, attempt)`.

    A function returns its output, or raises StateError. It can return `After(seconds, output)`, or FOREVER.
    """

    def __init__(self, definition, functions=None, *, observe=None, max_steps=10_000):
        self.machine = compiled(definition)
        self.execution = Execution(self.machine, secret=SECRET, observe=observe)
        self.functions = functions or {}
        self.now = START
        self.log = []  # (time, event)
        self.batches = []  # the commands of each event
        self.finished = []
        self.running = {}
        self.ran = []
        self.timer = None
        self._due = []
        self._count = 0
        self._max_steps = max_steps

    def start(self, value=None, name="one"):
        self.send(Started("execution-1", value, name, "flow"))
        return self

    def send(self, event: Event):
        """Give an event to the execution, and perform the commands."""
        stored = msgspec.json.decode(msgspec.json.encode(event), type=Event)  # as a log stores it
        self.log.append((self.now, stored))
        commands = self.execution.step([stored], self.now)
        self.batches.append(commands)
        for command in commands:
            self._perform(command)
        return commands

    def _later(self, seconds, event):
        self._count += 1
        heappush(self._due, (self.now + seconds, self._count, event))

    def _perform(self, command):
        if isinstance(command, RunTask):
            assert command.task not in self.ran, "a task runs twice"
            self.ran.append(command.task)
            self.running[command.task] = command
            self._run(command)
        elif isinstance(command, CancelTask):
            assert command.task in self.running, "a task is cancelled that does not run"
            del self.running[command.task]
        elif isinstance(command, SetTimer):
            self.timer = command.at
        elif isinstance(command, Evaluate):
            sent = msgspec.json.decode(msgspec.json.encode(command), type=Evaluate)
            self._later(0, evaluate(self.machine, sent))
        elif isinstance(command, Finish):
            self.finished.append(command)

    def _run(self, command):
        try:
            output = self.functions[command.resource](command.arguments, command.attempt)
        except StateError as error:
            self._later(0, TaskEnded(command.task, error=error.error, cause=error.cause))
            return
        if isinstance(output, After):
            self._later(output.seconds, TaskEnded(command.task, output.output))
        elif output is not FOREVER:
            self._later(0, TaskEnded(command.task, output))

    def go_on(self, *, until=None):
        """Report events in the order of their times, until the execution ends or a time has come."""
        for _ in range(self._max_steps):
            if self.finished and not self._due and self.timer is None:
                return self
            due = self._due[0][0] if self._due else None
            if due is None and self.timer is None:
                if until is None:
                    raise NeverEndsError
                break
            at = min(time for time in (due, self.timer) if time is not None)
            if until is not None and at > until:
                break
            self.now = max(self.now, at)
            if due is not None and due <= at:
                event = heappop(self._due)[2]
                if isinstance(event, TaskEnded) and self.running.pop(event.task, None) is None:
                    continue  # it was cancelled
            else:
                event, self.timer = TimerDue(), None
            self.send(event)
        else:
            raise NeverEndsError(f"the execution takes more than {self._max_steps} steps")
        self.now = max(self.now, until)
        return self

    def run(self, value=None):
        """Run an execution to its end, and return its last Finish."""
        self.start(value)
        self.go_on()
        return self.result

    @property
    def result(self):
        return self.finished[-1]


class After:
    """An output that comes after some seconds."""

    def __init__(self, seconds, output=None):
        self.seconds = seconds
        self.output = output


FOREVER = object()


def error(name, cause=""):
    """Return a function that fails."""

    def fail(*_):
        raise StateError(name, cause)

    return fail


def replayed(machine, log):
    """Replay a log, and return the execution and the commands of each event."""
    execution = Execution(machine, secret=SECRET)
    return execution, [execution.step([event], now) for now, event in log]
