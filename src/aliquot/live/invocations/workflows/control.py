"""Requests about executions: start by name, describe, list, read the history, stop, redrive, and answer tasks."""

import asyncio
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec import Struct

from aliquot.live.invocations.call import Call, Follower
from aliquot.live.invocations.workflows.definitions import machine_of, with_timeout
from aliquot.live.invocations.workflows.followed_history import FollowedHistory, HistoryReceiver
from aliquot.live.invocations.workflows.options import StartOptions
from aliquot.live.invocations.workflows.records import (
    LogEntry,
    StoredOutcome,
    TaskBegun,
    read_outcome,
    unpack_info,
    unpack_log,
)
from aliquot.live.invocations.workflows.run import ExecutionRun
from aliquot.live.invocations.workflows.workflows import Workflows
from aliquot.live.store.base import Store
from aliquot.live.store.executions import OPEN_STATUS, ExecutionQuery, ExecutionRow, StoredExecution
from aliquot.workflow.describe import stands
from aliquot.workflow.errors import EventRefusedError, WorkflowError
from aliquot.workflow.history import replay_history
from aliquot.workflow.interpreter import Event, Started, StopAsked, TaskBeat, TaskEnded, read_token
from aliquot.workflow.language import Machine
from aliquot.workflow.marks import StateMark, replay_marks
from aliquot.workflow.values import Value, described


class NameInUseError(WorkflowError):
    """Another execution of the workflow has this name already."""


class Description(Struct, frozen=True):
    """An execution as it is now. `states` has the states in which it stands, if it runs."""

    row: ExecutionRow
    input: Value
    outcome: StoredOutcome
    states: list[dict[str, Value]] = []


class ExecutionReceiver(HistoryReceiver, Follower, Protocol):
    """Receives the history of an execution, and the lines that its tasks print."""


class ExecutionControl:
    """Answers the requests of tenants about their executions."""

    def __init__(self, workflows: Workflows, store: Store) -> None:
        self._workflows = workflows
        self._executions = workflows.executions
        self._store = store
        self._names: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()

    async def start(self, call: Call, start: StartOptions) -> str | None:
        """Start an execution. Durable. Returns the id of an open one with the same name and input, if there is one.

        Raises `NameInUseError`, `CallRefusedError` and `OverloadedError`. If an id is returned, the call is not used.
        """
        if not start.name:
            await self._workflows.accept(call, start)
            return None
        key = (call.namespace.owner, call.function, start.name)
        lock = self._names.setdefault(key, asyncio.Lock())
        async with lock:
            found = await self._store.named_execution(*key)
            if found is None:
                await self._workflows.accept(call, start)
                return None
            if found.status == OPEN_STATUS and await self._input(found) == start.value:
                return found.id
        raise NameInUseError(
            f"the execution {found.id} of {call.function} has the name '{start.name}'; its status is {found.status}, "
            "and the same name is accepted only while it runs, with the same input"
        )

    async def _input(self, row: ExecutionRow) -> Value:
        return _input_of([await self._store.first_event(row.owner, row.id)])

    async def page(self, query: ExecutionQuery) -> Sequence[ExecutionRow]:
        return await self._store.executions(query)

    async def count(self, query: ExecutionQuery) -> int:
        return await self._store.count_executions(query)

    async def describe(self, owner: str, execution: str) -> Description | None:
        """Return an execution with its input, and its output or where it stands."""
        row = await self._store.execution(owner, execution)
        if row is None:
            return None
        value = described(await self._input(row))
        run = await self._executions.load(owner, execution)
        # Between the write of its end and the end of its run both are there.
        if row.outcome or run is None or run.machine.root is None:
            return Description(row, value, read_outcome(row.outcome))
        machine = run.machine
        so_far = StoredOutcome(device_ms=machine.device_ms, redrives=machine.redrives)
        return Description(row, value, so_far, stands(run.machine.root))

    async def history(self, owner: str, execution: str) -> list[dict[str, Value]] | None:
        """Return all events of the history of an execution in the store."""
        stored = await self._store.stored_execution(owner, execution)
        return None if stored is None else await asyncio.to_thread(_history, stored, self._executions.secret)

    async def follow(self, owner: str, execution: str, receiver: ExecutionReceiver, after: int) -> bool:
        """Pass the history behind an event, and printed lines, to a receiver. Returns False if there is none."""
        run = await self._executions.load(owner, execution)
        followed = FollowedHistory(receiver, after)
        if run is not None:
            run.follow_history(followed)
            run.call.follow(receiver)
        stored = await self._store.stored_execution(owner, execution)
        if stored is None:
            return False
        await followed.begin(stored, self._executions.secret)
        return True

    async def definition(self, owner: str, execution: str) -> bytes | None:
        """Return the text of the definition with which an execution began, and which it keeps."""
        stored = await self._store.stored_execution(owner, execution)
        return None if stored is None else stored.definition

    async def drawn(self, owner: str, execution: str) -> bytes | None:
        """Return a picture of an execution in the store, with marks for the states that it has entered."""
        stored = await self._store.stored_execution(owner, execution)
        if stored is None:
            return None
        marks = await asyncio.to_thread(_marks, stored, self._executions.secret)
        return await self._workflows.expressions.draw(owner, stored.definition, marks, stored.row.workflow)

    async def stop(self, owner: str, execution: str, error: str, cause: str) -> bool:
        """Stop an execution. Durable. Raises `EventRefusedError`. Returns False if there is none."""
        run = await self._executions.load(owner, execution)
        if run is not None:
            await self._post(run, StopAsked(error, cause))
            return True
        row = await self._store.execution(owner, execution)
        if row is not None:
            raise EventRefusedError(f"the execution {execution} does not run: its status is {row.status}")
        return False

    async def redrive(self, owner: str, execution: str) -> bool:
        """Take up a failed, stopped or timed-out execution. Durable. Raises `EventRefusedError`."""
        return await self._executions.redrive(owner, execution)

    async def answer(self, owner: str, token: str, event: "TaskAnswer") -> bool:
        """Answer the task of a token. Durable. Raises `EventRefusedError` if it was answered before.

        Returns False if the token is not valid, or its task or execution has ended.
        """
        place = read_token(token, self._executions.secret)
        run = None if place is None else await self._executions.load(owner, place.execution)
        if place is None or run is None:
            return False
        task = place.task()
        if not run.awaits(task):
            return await self._was_answered(run, task)
        await self._post(run, event.as_event(task))
        return True

    async def _was_answered(self, run: ExecutionRun, task: str) -> bool:
        """Raise `EventRefusedError` if a task was answered, or return False."""
        stored = await self._store.stored_execution(run.owner, run.id)
        log = unpack_log(stored.events) if stored is not None else []
        if any(isinstance(entry, TaskEnded) and entry.task == task and entry.answered for _, entry in log):
            raise EventRefusedError("the task was answered already")
        return False

    async def _post(self, run: ExecutionRun, event: Event) -> None:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._executions.engine.post(run, event, durable)
        await durable


class TaskAnswer(Struct, frozen=True):
    """The answer to a task that waits for a callback: an output, an error, or a sign of life."""

    output: Value = None
    error: str | None = None
    cause: str = ""
    beat: bool = False

    def as_event(self, task: str) -> Event:
        if self.beat:
            return TaskBeat(task)
        return TaskEnded(task, self.output, self.error, self.cause, answered=True)


def _input_of(rows: Sequence[bytes]) -> Value:
    started = next((entry for _, entry in unpack_log(rows) if isinstance(entry, Started)), None)
    return started.input if started is not None else None


def _replayed(stored: StoredExecution) -> tuple[Machine, list[tuple[float, Event]]]:
    """Return what a replay needs. It runs in a thread, so the machine is its own."""
    machine = with_timeout(machine_of(stored.definition), unpack_info(stored.row.body))
    log: list[tuple[float, LogEntry]] = unpack_log(stored.events)
    return machine, [(at, one) for at, one in log if not isinstance(one, TaskBegun)]


def _history(stored: StoredExecution, secret: bytes) -> list[dict[str, Value]]:
    return replay_history(*_replayed(stored), secret)


def _marks(stored: StoredExecution, secret: bytes) -> dict[str, StateMark]:
    return replay_marks(*_replayed(stored), secret)
