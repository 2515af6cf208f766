"""The history of an execution as it grows: a second machine makes it from the steps that have become durable."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from aliquot.live.invocations.workflows.definitions import machine_of, with_timeout
from aliquot.live.invocations.workflows.records import Log, TaskBegun, unpack_info, unpack_log
from aliquot.live.store.executions import StoredExecution
from aliquot.workflow.history import Details, History
from aliquot.workflow.interpreter import Execution
from aliquot.workflow.interpreter.commands import RUNNING


class HistoryReceiver(Protocol):
    """Receives the events of a history, in their order."""

    @property
    def closed(self) -> bool: ...

    def happened(self, event: Details) -> None: ...

    def finished(self, status: str) -> None:
        """Handle the end of the execution, after which nothing comes."""
        ...


class FollowedHistory:
    """Passes the history of one execution to a receiver, from the event behind `after` on."""

    def __init__(self, receiver: HistoryReceiver, after: int) -> None:
        self._receiver = receiver
        self._sent = after
        self._machine: Execution | None = None
        self._execution: Execution | None = None  # the same, when it has seen the log
        self._history = History(self._now)
        self._rows = 0  # of the log that the machine has seen
        self._early: list[tuple[int, Log]] = []  # steps that came while the log was read

    @property
    def closed(self) -> bool:
        return self._receiver.closed

    async def begin(self, stored: StoredExecution, secret: bytes) -> None:
        """Pass on what has happened so far. The log is replayed in a thread."""
        machine = with_timeout(machine_of(stored.definition), unpack_info(stored.row.body))
        execution = self._machine = Execution(machine, secret=secret, observe=self._history.observe)
        await asyncio.to_thread(_step, execution, unpack_log(stored.events))
        self._execution, self._rows = execution, len(stored.events)
        early, self._early = self._early, []
        self._send()
        for number, entries in early:
            self.wrote(number, entries)

    def wrote(self, number: int, entries: Log) -> None:
        """Take a step of the execution that is on disk, given the number of its row in the log."""
        if self._execution is None:
            self._early.append((number, entries))
        elif number >= self._rows and not self.closed:
            _step(self._execution, entries)
            self._send()

    def _now(self) -> float:
        return self._machine.now if self._machine is not None else 0.0

    def _send(self) -> None:
        assert self._execution is not None  # noqa: S101 - it has begun
        for event in self._history.events[self._sent :]:
            self._receiver.happened(event)
        self._sent = max(self._sent, len(self._history.events))
        if self._execution.status != RUNNING:
            self._receiver.finished(self._execution.status)


def _step(execution: Execution, entries: Sequence[tuple[float, object]]) -> None:
    for at, entry in entries:
        if not isinstance(entry, TaskBegun):
            execution.step([entry], at)  # type: ignore[list-item] # the others are events
