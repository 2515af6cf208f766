"""Run workflows offline, in virtual time: a shell that performs the commands of an execution, for tests.

    shell = WorkflowShell(definition, {"shrink": lambda image, attempt: image[:10]})
    assert shell.run({"image": "..."}).output == ...

A function gets its arguments and the number of the attempt. It returns its output, `After(seconds, output)` or FOREVER,
or raises `StateError(error, cause)`. The output of a task that waits for a callback is taken for the answer. Waits and
retries take no time.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from types import GeneratorType
from typing import Any

import msgspec

from aliquot.runtime import objects
from aliquot.workflow.errors import DefinitionError, StateError
from aliquot.workflow.interpreter import (
    CancelTask,
    Command,
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
from aliquot.workflow.interpreter.frames import Frame
from aliquot.workflow.language import Machine, read_definition
from aliquot.workflow.values import ObjectRef, decode_object, encode_object, replace_objects

START = 1_700_000_000.0
SECRET = b"a secret for tokens in tests"
MAX_STEPS = 10_000

Function = Callable[[Any, int], Any]
_encode = msgspec.msgpack.Encoder(enc_hook=encode_object).encode
_decode_event = msgspec.msgpack.Decoder(Event, ext_hook=decode_object).decode
_decode_evaluate = msgspec.msgpack.Decoder(Evaluate, ext_hook=decode_object).decode


class NeverEndsError(Exception):
    """The execution waits for something that never comes, or takes too many steps."""


class After:
    """An output that comes after some seconds."""

    def __init__(self, seconds: float, output: Any = None) -> None:  # noqa: ANN401 - any JSON value
        self.seconds = seconds
        self.output = output


FOREVER = After(float("inf"))


def compiled(definition: Any) -> Machine:  # noqa: ANN401 - any JSON value
    """Return the machine of a definition, or raise DefinitionError with all mistakes."""
    machine, complaints = read_definition(definition)
    if machine is None:
        raise DefinitionError([complaint for complaint in complaints if not complaint.warning])
    return machine


def in_process(function: Callable[..., Any]) -> Function:
    """Return a function for a shell that calls a function of an app. Its errors have the names of their classes."""

    def run(arguments: Any, attempt: int) -> Any:  # noqa: ANN401, ARG001 - any JSON value; as a shell calls it
        try:
            result = function(**arguments)
            return list(result) if isinstance(result, GeneratorType) else result
        except Exception as error:
            raise StateError(type(error).__name__, str(error)) from error

    return run


def replayed(machine: Machine, log: list[tuple[float, Event]]) -> tuple[Execution, list[list[Command]]]:
    """Replay a log, and return the execution with the commands of each event."""
    execution = Execution(machine, secret=SECRET)
    return execution, [execution.step([event], now) for now, event in log]


class WorkflowShell:
    """Runs one execution. It keeps the log, the commands of each event, and the way through the states."""

    def __init__(self, definition: Any, functions: Mapping[str, Function] | None = None) -> None:  # noqa: ANN401
        self.machine = compiled(definition)
        self.execution = Execution(self.machine, secret=SECRET, observe=self._observe)
        self.functions = functions or {}
        self.now = START
        self.log: list[tuple[float, Event]] = []
        self.batches: list[list[Command]] = []
        self.finished: list[Finish] = []
        self.running: dict[str, RunTask] = {}
        self.ran: list[str] = []
        self.timer: float | None = None
        self.path: list[str] = []  # the states that were entered
        self.taken: dict[tuple[str, str], None] = {}  # transitions; an empty target is the end
        self._left: dict[Frame, str] = {}
        self._objects: dict[str, Any] = {}  # that JSON cannot hold, by the ids of their references
        self._due: list[tuple[float, int, Event]] = []
        self._count = 0

    def start(self, value: Any = None, name: str = "one") -> "WorkflowShell":  # noqa: ANN401 - any JSON value
        self.send(Started("execution-1", self._referred("input", value), name, "flow"))
        return self

    def run(self, value: Any = None) -> Finish:  # noqa: ANN401 - any JSON value
        """Run an execution to its end."""
        return self.start(value).go_on().result

    @property
    def result(self) -> Finish:
        """The end of the execution, whose output has its objects."""
        finish = self.finished[-1]
        return msgspec.structs.replace(finish, output=self._resolved(finish.output))

    def _referred(self, prefix: str, value: Any) -> Any:  # noqa: ANN401 - any value
        """Return a value with references in the place of objects, as the machine gets it on the platform."""
        if objects.is_json(value):
            return value
        plain, found = objects.take_out(value)
        root = [plain]
        for number, (path, one) in enumerate(found):
            reference = ObjectRef(f"{prefix}.{number}", type(one).__name__, 0)
            self._objects[reference.id] = one
            objects.place(root, path, reference)
        return root[0]

    def _resolved(self, value: Any) -> Any:  # noqa: ANN401 - any value
        return replace_objects(value, lambda one, _: self._objects[one.id])

    def send(self, event: Event) -> list[Command]:
        """Give an event to the execution, as a log would store it, and perform the commands."""
        stored: Event = _decode_event(_encode(event))
        self.log.append((self.now, stored))
        commands = self.execution.step([stored], self.now)
        self.batches.append(commands)
        for command in commands:
            self._perform(command)
        return commands

    def go_on(self, *, until: float | None = None) -> "WorkflowShell":
        """Report events in the order of their times, until the execution ends or a time has come."""
        for _ in range(MAX_STEPS):
            if self.finished and not self._due and self.timer is None:
                return self
            times = [time for time in (self._due[0][0] if self._due else None, self.timer) if time is not None]
            if not times and until is None:
                raise NeverEndsError("the execution waits for an event that does not come")
            if not times or (until is not None and min(times) > until):
                self.now = max(self.now, until or 0)
                return self
            self.now = max(self.now, min(times))
            event = self._next_event()
            if event is not None:
                self.send(event)
        raise NeverEndsError(f"the execution takes more than {MAX_STEPS} steps")

    def _next_event(self) -> Event | None:
        if not self._due or self._due[0][0] > self.now:
            self.timer = None
            return TimerDue()
        event = heappop(self._due)[2]
        if isinstance(event, TaskEnded) and self.running.pop(event.task, None) is None:
            return None  # it was cancelled
        return event

    def _perform(self, command: Command) -> None:
        if isinstance(command, RunTask):
            assert command.task not in self.ran, f"the task {command.task} runs twice"  # noqa: S101 - for tests
            self.ran.append(command.task)
            self.running[command.task] = command
            self._run(command)
        elif isinstance(command, CancelTask):
            del self.running[command.task]
        elif isinstance(command, SetTimer):
            self.timer = command.at
        elif isinstance(command, Evaluate):
            self._later(0, evaluate(self.machine, _decode_evaluate(_encode(command))))
        elif isinstance(command, Finish):
            self.finished.append(command)
            for name in self._left.values():
                self.taken[name, ""] = None
            self._left.clear()

    def _run(self, command: RunTask) -> None:
        try:
            output = self.function_of(command)(self._resolved(command.arguments), command.attempt)
        except StateError as error:
            self._later(0, TaskEnded(command.task, error=error.error, cause=error.cause))
            return
        after = output if isinstance(output, After) else After(0, output)
        if after is not FOREVER:
            given = self._referred(command.task, after.output)
            self._later(after.seconds, TaskEnded(command.task, given, answered=command.token is not None))

    def function_of(self, command: RunTask) -> Function:
        """Return what runs for a task. Subclasses may choose it by the state."""
        return self.functions[command.resource]

    def _later(self, seconds: float, event: Event) -> None:
        self._count += 1
        heappush(self._due, (self.now + seconds, self._count, event))

    def _observe(self, kind: str, frame: Frame, details: dict[str, Any]) -> None:
        if kind.endswith("StateEntered"):
            self.path.append(details["name"])
            before = self._left.pop(frame, None)
            if before is not None:
                self.taken[before, details["name"]] = None
        elif kind.endswith("StateExited"):
            self._left[frame] = details["name"]
