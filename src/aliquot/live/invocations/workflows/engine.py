"""The engine of executions: gives events to the machines, writes them to the store, and performs the commands.

An event of a durable execution is on disk before the commands that follow from it are performed. The step itself is
made before the write, because it only computes. So the events, the timer and the end of an execution are one write.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import structlog
from msgspec import Struct

from aliquot.clock import now_ms
from aliquot.live.invocations.workflows.objects import Held, PlainValue, make_container, plain_value
from aliquot.live.invocations.workflows.open_executions import OpenExecutions
from aliquot.live.invocations.workflows.records import (
    LogEntry,
    TaskBegun,
    execution_record,
    pack_info,
    pack_log,
    pack_outcome,
)
from aliquot.live.invocations.workflows.run import ExecutionRun, Posted
from aliquot.live.invocations.workflows.timers import TimerHeap
from aliquot.live.store.base import Store, StoreError
from aliquot.live.store.executions import OPEN_STATUS, ExecutionChange, ExecutionEnd, ExecutionRow, ExecutionTimer
from aliquot.live.store.records import Activation
from aliquot.workflow.errors import RUNTIME, EventRefusedError
from aliquot.workflow.interpreter import (
    CancelTask,
    Command,
    Evaluate,
    Event,
    Finish,
    RunTask,
    SetTimer,
    Started,
    TaskBeat,
    TaskEnded,
)
from aliquot.workflow.interpreter.commands import FAILED, SUCCEEDED

STORE_RETRY_DELAY_S = 0.5
ENDED = "the execution has ended"
NO_OUTPUT = PlainValue(b"null")
NOT_OPEN = "the task has ended, or was answered already"

log = structlog.get_logger("aliquot.workflows")


class Performer(Struct, frozen=True):
    """The functions that perform the commands of executions."""

    run_task: Callable[[ExecutionRun, RunTask], None]
    cancel_task: Callable[[ExecutionRun, str], None]
    evaluate: Callable[[ExecutionRun, Evaluate], None]
    finish: Callable[[ExecutionRun, Finish, Activation], None]
    fetch: Callable[[ExecutionRun, list[str], Callable[[Held], None]], None]  # objects from the disk
    restored: Callable[[ExecutionRun], None]  # called before a run that was read from the store goes on


class Step(Struct, frozen=True):
    """A step that is being written: the events with those who wait for them, and the commands that follow."""

    change: ExecutionChange
    entries: list[tuple[float, LogEntry]]
    batch: list[Posted]
    commands: list[Command]


class ExecutionEngine:
    """Holds the executions that are in memory, and lets them take their steps."""

    def __init__(
        self, store: Store, clock: Callable[[], float], performer: Performer, due: Callable[[str], None]
    ) -> None:
        """`due` is called with the id of an execution whose timer is due."""
        self._store = store
        self.clock = clock
        self._performer = performer
        self.runs: dict[str, ExecutionRun] = {}
        self.open = OpenExecutions()
        self.timers = TimerHeap(clock, due)
        self.idle: OrderedDict[str, float] = OrderedDict()  # since when executions only wait, the longest first
        self.stopping = False

    def begin(
        self,
        run: ExecutionRun,
        started: Started,
        durable: "asyncio.Future[None] | None" = None,
        *,
        name: str = "",
        dequeue: bool = False,
    ) -> None:
        """Begin an execution. `durable` is done when it is on disk, or has a `StoreError`."""
        self.runs[run.id] = run
        self.open.add(run.id, run.owner)
        run.stepping = True
        now = self.clock()
        batch: list[Posted] = [(started, durable)]
        commands = self._step(run, batch, now)
        if run.express:
            self._perform(run, commands)
            self._continue(run)
            return
        row = ExecutionRow(
            run.id, run.owner, run.call.function, name, run.definition.digest, OPEN_STATUS, run.info.started_ms, None,
            pack_info(run.info),
        )  # fmt: skip
        self._write_step(run, batch, commands, now, row, dequeue=dequeue)

    def take_up(self, run: ExecutionRun, commands: list[Command]) -> None:
        """Continue an execution that was read from the store."""
        self.runs[run.id] = run
        run.stepping = True
        self.timers.set(run.id, run.machine.announced)
        self._performer.restored(run)
        self._perform(run, commands)
        self._continue(run)

    def redrive(self, run: ExecutionRun, event: Event, durable: "asyncio.Future[None]") -> None:
        """Open an ended execution again. `durable` has an `EventRefusedError` if it cannot be redriven."""
        run.stepping = True
        now = self.clock()
        batch: list[Posted] = [(event, durable)]
        commands = self._step(run, batch, now)
        if batch:
            self.runs[run.id] = run
            self.open.add(run.id, run.owner)
            self._write_step(run, batch, commands, now, reopen=True)

    def post(
        self,
        run: ExecutionRun,
        event: Event,
        durable: "asyncio.Future[None] | None" = None,
        *,
        held: Held | None = None,
    ) -> None:
        """Give an event to an execution, with the objects that it refers to.

        `durable` is done when it is on disk, or has an `EventRefusedError`.
        """
        if run.has_ended:
            _refuse(durable, EventRefusedError(ENDED))
            return
        if held:
            run.hold(held)
        self.idle.pop(run.id, None)
        run.inbox.append((event, durable))
        if not run.stepping:
            self._continue(run)

    def write_begun(self, run: ExecutionRun, task: str, then: Callable[[], None]) -> None:
        """Write that a task is about to begin which may run a bounded number of times, and call `then`."""
        change = ExecutionChange(run.id, run.owner, run.rows, pack_log([(self.clock(), TaskBegun(task))]))
        run.rows += 1
        run.log_bytes += len(change.events)
        self._write(change, then, lambda _: None)

    # --- steps ------------------------------------------------------------------------------------------

    def _continue(self, run: ExecutionRun) -> None:
        """Take the steps of an execution until no event is left, or one is being written."""
        run.stepping = True
        while run.inbox and not run.has_ended:
            batch, now = _next_batch(run), self.clock()
            commands = self._step(run, batch, now)
            if batch and run.express:
                _answer(batch)
                self._perform(run, commands)
            elif batch:
                self._write_step(run, batch, commands, now)
                return
        run.stepping = False
        if not run.has_ended and run.only_waits:
            self.idle[run.id] = self.clock()

    def _step(self, run: ExecutionRun, batch: list[Posted], now: float) -> list[Command]:
        """Give events to the machine. One that is refused is removed from the batch, which then is empty."""
        event, durable = batch[0]
        if durable is not None and isinstance(event, TaskEnded | TaskBeat) and not run.awaits(event.task):
            _refuse(durable, EventRefusedError(NOT_OPEN))
            batch.clear()
            return []
        try:
            commands = run.machine.step([event for event, _ in batch], now)
        except EventRefusedError as refusal:
            _refuse(durable, refusal)
            batch.clear()
            return []
        except Exception as error:  # an execution must end whatever fails in it
            log.exception("an execution failed", execution=run.id, **run.call.log_facts)
            return [Finish(FAILED, error=RUNTIME, cause=f"the execution failed: {error}")]
        for command in commands:
            if isinstance(command, RunTask):
                run.note_task(command.task)
        return commands

    def _write_step(
        self,
        run: ExecutionRun,
        batch: list[Posted],
        commands: list[Command],
        now: float,
        begin: ExecutionRow | None = None,
        *,
        dequeue: bool = False,
        reopen: bool = False,
    ) -> None:
        """Write a step, after the objects of the output have been read that its record takes along."""

        def write(held: Held) -> None:
            made = self._make_step(run, batch, commands, now, begin, dequeue=dequeue, reopen=reopen, held=held)
            self._submit(run, made)

        missing = sorted(_output_of(commands).names - run.objects.keys())
        if missing:
            self._performer.fetch(run, missing, write)
        else:
            write({})

    def _make_step(
        self,
        run: ExecutionRun,
        batch: list[Posted],
        commands: list[Command],
        now: float,
        begin: ExecutionRow | None = None,
        *,
        dequeue: bool = False,
        reopen: bool = False,
        held: Held,
    ) -> Step:
        entries: list[tuple[float, LogEntry]] = [(now, event) for event, _ in batch]
        events = pack_log(entries)
        objects = tuple((name, run.objects[name].inlined()) for name in run.unwritten)
        run.unwritten.clear()
        run.log_bytes += len(events) + sum(len(body) for _, body in objects)
        finish = _finish_of(commands)
        succeeded = finish is not None and finish.status == SUCCEEDED
        end = None
        timer = ExecutionTimer(run.machine.announced, run.busy)
        if finish is not None:
            record = self._record(run, finish, held)
            end = ExecutionEnd(finish.status, pack_outcome(finish, run.machine), record, run.log_bytes)
        text = run.definition.text if begin is not None else b""
        change = ExecutionChange(
            run.id, run.owner, run.rows, events, begin, text, dequeue, reopen,
            timer if end is None and timer != run.stored_timer else None, end,
            () if succeeded else objects, removes_objects=succeeded and run.has_objects,
        )  # fmt: skip
        run.rows += 1
        run.stored_timer = timer
        return Step(change, entries, batch, commands)

    def _record(self, run: ExecutionRun, finish: Finish, held: Held) -> Activation:
        output = _output_of([finish])
        known = {**run.objects, **held}
        pickled = make_container(output, known) if output.found and output.names <= known.keys() else None
        notes = None if run.limited is None else run.limited.end()
        return execution_record(run.id, run.owner, run.info, finish, now_ms(), run.tasks, pickled, notes)

    def _submit(self, run: ExecutionRun, step: Step) -> None:
        """Write a step, and go on when it is durable."""

        def written() -> None:
            _answer(step.batch)
            for history in run.histories:
                history.wrote(step.change.number, step.entries)
            self._perform(run, step.commands, step.change.end)
            if not run.has_ended:
                self._continue(run)

        def refused(error: StoreError) -> None:
            if run.limited is not None:
                run.limited.end()
            self._forget(run)
            for _, durable in step.batch:
                _refuse(durable, error)

        is_new = step.change.begin is not None or step.change.reopen
        self._write(step.change, written, refused if is_new else None)

    def _write(
        self, change: ExecutionChange, then: Callable[[], None], failed: Callable[[StoreError], None] | None
    ) -> None:
        """Write a change and call `then`. Without `failed` it is tried until it succeeds, so that nothing is lost."""

        def done(written: "asyncio.Future[None]") -> None:
            error = None if written.cancelled() else written.exception()
            if isinstance(error, StoreError):
                again(error)
            elif not written.cancelled():
                then()

        def again(error: StoreError) -> None:
            if failed is not None:
                failed(error)
            elif not self.stopping:
                log.warning("the store fails; trying again", error=str(error))
                asyncio.get_running_loop().call_later(STORE_RETRY_DELAY_S, attempt)

        def attempt() -> None:
            try:
                self._store.write_execution(change).add_done_callback(done)
            except StoreError as error:
                again(error)

        attempt()

    # --- commands ---------------------------------------------------------------------------------------

    def _perform(self, run: ExecutionRun, commands: list[Command], end: ExecutionEnd | None = None) -> None:
        perform = self._performer
        resting = self.stopping and not run.express  # the next server takes it up
        run.give_back_stages()
        for command in commands:
            if isinstance(command, RunTask) and not resting:
                perform.run_task(run, command)
            elif isinstance(command, CancelTask):
                perform.cancel_task(run, command.task)
            elif isinstance(command, SetTimer):
                self.timers.set(run.id, command.at)
            elif isinstance(command, Evaluate) and not resting:
                perform.evaluate(run, command)
        run.drop_written()
        finish = _finish_of(commands)
        if finish is not None:
            self.timers.set(run.id, None)
            self._forget(run)
            perform.finish(run, finish, end.record if end is not None else self._record(run, finish, {}))

    def _forget(self, run: ExecutionRun) -> None:
        run.has_ended = True
        self.runs.pop(run.id, None)
        self.idle.pop(run.id, None)
        self.open.remove(run.id)
        while run.inbox:
            _refuse(run.inbox.popleft()[1], EventRefusedError(ENDED))


def _finish_of(commands: list[Command]) -> Finish | None:
    return next((command for command in commands if isinstance(command, Finish)), None)


def _output_of(commands: list[Command]) -> PlainValue:
    """Return the output of the execution that ends with these commands, if it does and has objects."""
    finish = _finish_of(commands)
    return plain_value(finish.output) if finish is not None and finish.status == SUCCEEDED else NO_OUTPUT


def _next_batch(run: ExecutionRun) -> list[Posted]:
    """Take the next events. One that somebody waits for is alone, because it may be refused."""
    batch = [run.inbox.popleft()]
    while batch[0][1] is None and run.inbox and run.inbox[0][1] is None:
        batch.append(run.inbox.popleft())
    return batch


def _answer(batch: list[Posted]) -> None:
    for _, durable in batch:
        if durable is not None and not durable.done():
            durable.set_result(None)


def _refuse(durable: "asyncio.Future[None] | None", error: Exception) -> None:
    if durable is not None and not durable.done():
        durable.set_exception(error)
