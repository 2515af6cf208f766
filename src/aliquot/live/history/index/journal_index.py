"""The index of a journal: calls, decisions, sandboxes over time and counts, from its steps alone.

It is pure: `take` gets a step with its time, and nothing here reads a clock or a file. Rows of the table of records add
what the journal does not have, which is how a call ended for its caller.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from aliquot.core.commands import (
    Command,
    Complete,
    Dispatch,
    Fail,
    LoadMemory,
    Reject,
    Run,
    Start,
    StartSandbox,
    StopSandbox,
    UnloadMemory,
)
from aliquot.core.events import Event, InvocationArrived, MemoryLoaded, RunFinished, SandboxLost, SandboxStarted
from aliquot.core.model import FlowKey
from aliquot.core.places import SEPARATOR
from aliquot.core.records import Invocation
from aliquot.core.scheduler import Scheduler
from aliquot.live.history.index.calls import COMPOSITION, MAX_AGE_S, MAX_CALLS, SUCCESS, CallTable, IndexedCall
from aliquot.live.history.index.decisions import DecisionLog
from aliquot.live.history.index.sandboxes import Activity, SandboxTable
from aliquot.live.history.index.series import SeriesTable
from aliquot.live.history.records import CallEnd
from aliquot.live.invocations.journal.writer import JournalStep

_DISPATCHED = "start"  # the annotation of calls that the scheduler has dispatched
_MAX_EARLY = 10_000
INTERRUPTED = "the server was killed, and did not run it again"


class CallRecord(NamedTuple):
    """The record of a call, as far as the index needs it. Times are epoch seconds."""

    id: str
    owner: str
    tenant: str
    name: str
    start: float
    end: float
    status: int
    error: str
    session: str | None
    notes: dict[str, Any]  # its annotations


class JournalIndex:
    """Takes the steps of a journal and the records of calls, and keeps the newest."""

    def __init__(
        self,
        on_end: Callable[[IndexedCall, CallRecord], None] | None = None,
        max_calls: int = MAX_CALLS,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        """Call `on_end` with each call that has ended and whose record was read."""
        self.calls = CallTable(max_calls, max_age_s)
        self.sandboxes = SandboxTable()
        self.series = SeriesTable()
        self.decisions = DecisionLog(self._flow_of_call, self.sandboxes.place_of)
        self._open: dict[str, IndexedCall] = {}  # calls of the scheduler that have not ended
        self._early: OrderedDict[str, CallRecord] = OrderedDict()  # records of calls whose end was not read yet
        self._began_s = inf  # when the journal begins, as far as it is read
        self._batches: dict[str, tuple[str, ...]] = {}  # the members of a run, by its name
        self._on_end = on_end
        self._takers = self._make_takers()

    def _make_takers(self) -> dict[type[Event | Command], Callable[..., None]]:
        return {
            InvocationArrived: self._arrive,
            SandboxStarted: lambda event, at: self.sandboxes.end(event.sandbox, at),
            MemoryLoaded: lambda event, at: self.sandboxes.end(event.sandbox, at),
            SandboxLost: self._lose,
            RunFinished: self._finish_run,
            StartSandbox: self._start,
            LoadMemory: lambda command, at: self.sandboxes.begin(command.sandbox, Activity.LOAD, at),
            UnloadMemory: self._unload,
            StopSandbox: self._stop,
            Dispatch: self._dispatch,
            Run: self._run,
            Complete: lambda command, at: self._end(command.invocation, CallEnd.COMPLETED, "", at),
            Fail: lambda command, at: self._end(command.invocation, CallEnd.FAILED, command.reason, at),
            Reject: lambda command, at: self._end(command.invocation, CallEnd.REFUSED, command.reason, at),
        }

    def begin(self, scheduler: Scheduler | None, at: float) -> None:
        """Take the state that the reading or a run of the server begins with, or None if it cannot be read."""
        self._began_s = min(self._began_s, at)
        self.sandboxes.clear(at)
        self.series.restart(at)
        self._batches.clear()
        if scheduler is None:
            return
        for number, sandbox in scheduler.pool.sandboxes.items():
            self.sandboxes.add(number, sandbox.flow.key, tuple(sandbox.place))
        for call in self._open.values():  # until its arrival is seen again
            call.end, call.reason, call.ended = CallEnd.INTERRUPTED, INTERRUPTED, at
        self._open.clear()
        for invocation in scheduler.invocations.values():
            self._adopt(invocation, at - scheduler.now)

    def take(self, step: JournalStep, at: float) -> None:
        """Take a step that happened at this time, in epoch seconds."""
        takers = self._takers
        for event in step.events:
            taker = takers.get(type(event))
            if taker is not None:
                taker(event, at)
        decide = self.decisions.take
        for command in step.commands:
            decide(command, at)
            taker = takers.get(type(command))
            if taker is not None:
                taker(command, at)

    def record(self, record: CallRecord) -> None:
        """Take the record of a call. The journal has no compositions, and no calls from before it begins."""
        call = self.calls.get(record.id)
        if call is None:
            if _DISPATCHED in record.notes and record.start >= self._began_s:
                self._early[record.id] = record  # its end in the journal is read next
                while len(self._early) > _MAX_EARLY:
                    self._early.popitem(last=False)
                return
            call = self._add_recorded(record)
        elif call.id in self._open:
            self._early[record.id] = record
            return
        call.owner, call.status, call.error = record.owner, record.status, record.error
        if record.status != SUCCESS:
            self.series.add(call.flow[0], "failed", record.end)
        if self._on_end is not None:
            self._on_end(call, record)

    def _add_recorded(self, record: CallRecord) -> IndexedCall:
        """Add a call that only its record knows."""
        notes = record.notes
        wait_s, init_s = (float(notes.get(name) or 0) / 1000 for name in ("waitTime", "initTime"))
        call = self.calls.add(record.id, FlowKey(record.tenant, record.name), record.start - wait_s)
        call.start = str(notes.get(_DISPATCHED, COMPOSITION))
        call.dispatched, call.began = record.start, min(record.end, record.start + init_s)
        call.finished = call.ended = record.end
        call.devices = tuple(str(notes.get("device", "")).split(SEPARATOR)) if notes.get("device") else ()
        call.end, call.session = CallEnd.COMPLETED, record.session
        return call

    def _flow_of_call(self, name: str) -> FlowKey | None:
        call = self.calls.get(name)
        return None if call is None else call.flow

    # --- calls ------------------------------------------------------------------------------------------

    def _arrive(self, event: InvocationArrived, at: float) -> None:
        call = self.calls.get(event.invocation)
        if call is None:
            call = self.calls.add(event.invocation, FlowKey(event.tenant, event.function), at)
            call.session, call.execution = event.session, event.execution
            self.series.add(event.tenant, "arrivals", at)
        else:  # a restarted server takes it up again
            call.end, call.ended, call.reason = CallEnd.OPEN, None, ""
        call.dispatched = call.began = call.finished = None
        self._open[event.invocation] = call
        self.series.change(event.tenant, "queued", at, 1)

    def _adopt(self, invocation: Invocation, offset_s: float) -> None:
        """Take a call that had arrived before the reading began."""
        call = self.calls.get(invocation.id)
        if call is None:
            call = self.calls.add(invocation.id, invocation.flow.key, offset_s + invocation.arrived)
        call.end, call.ended, call.reason = CallEnd.OPEN, None, ""
        self._open[call.id] = call
        sandbox, now = invocation.sandbox, offset_s + invocation.dispatched
        if sandbox is not None:
            call.dispatched = call.began = now
            call.sandbox, call.devices = sandbox.id, tuple(sandbox.place)
            self.sandboxes.begin(sandbox.id, Activity.RUN, now, call.id)
        self.series.change(call.flow[0], "queued" if sandbox is None else "running", now, 1)

    def _dispatch(self, command: Dispatch, at: float) -> None:
        call = self._open.get(command.invocation)
        if call is None:
            return
        if call.dispatched is None:
            self.series.change(call.flow[0], "queued", at, -1)
            self.series.change(call.flow[0], "running", at, 1)
            self.series.add(call.flow[0], "wait_s", at, at - call.arrived)
        call.dispatched, call.start, call.reason = at, command.start.value, command.reason
        call.sandbox, call.devices = command.sandbox, tuple(command.place)
        if command.start is Start.COLD:
            call.start_cause = self.sandboxes.why_not_there(call.flow, command.sandbox)
            self.series.add(call.flow[0], "cold", at)
        elif command.start is Start.SWAP_IN:
            call.start_cause = self.sandboxes.why_swapped_out(call.flow)

    def _run(self, command: Run, at: float) -> None:
        self.sandboxes.begin(command.sandbox, Activity.RUN, at, command.invocation)
        if command.riders:
            self._batches[command.invocation] = (command.invocation, *command.riders)
        for name in (command.invocation, *command.riders):
            call = self._open.get(name)
            if call is not None:
                call.began = at

    def _finish_run(self, event: RunFinished, at: float) -> None:
        sandbox = self.sandboxes.get(event.sandbox)
        before = None if sandbox is None else sandbox.finished
        if sandbox is not None:
            sandbox.finished = at
            if sandbox.activity is Activity.RUN:
                self.sandboxes.end(event.sandbox, at)
        for name in self._batches.pop(event.invocation, (event.invocation,)):
            call = self._open.get(name)
            if call is None or call.dispatched is None:
                continue
            if call.began is None:  # it was handed ahead, and began when the run before it ended
                call.began = max(before or call.dispatched, call.dispatched)
                self.sandboxes.add_slice(event.sandbox, call.began, at, name)
            call.finished = at
            self.series.add(call.flow[0], "run_s", at, at - call.began)

    def _end(self, name: str, end: CallEnd, reason: str, at: float) -> None:
        call = self._open.pop(name, None)
        if call is None:
            return
        level = "queued" if call.dispatched is None else "running"
        self.series.change(call.flow[0], level, at, -1)
        self.series.add(call.flow[0], "ended", at)
        call.end, call.ended = end, at
        if reason:
            call.reason = reason
        record = self._early.pop(name, None)
        if record is not None:
            self.record(record)

    # --- sandboxes --------------------------------------------------------------------------------------

    def _start(self, command: StartSandbox, at: float) -> None:
        self.sandboxes.add(command.sandbox, FlowKey(command.tenant, command.function), tuple(command.place))
        self.sandboxes.begin(command.sandbox, Activity.START, at, command.invocation)

    def _lose(self, event: SandboxLost, at: float) -> None:
        self.sandboxes.remove(event.sandbox, at, f"its last sandbox was lost: {event.reason}")

    def _unload(self, command: UnloadMemory, _at: float) -> None:
        self.sandboxes.note(command.sandbox, f"its last sandbox was moved out of device memory: {command.reason}")

    def _stop(self, command: StopSandbox, at: float) -> None:
        self.sandboxes.remove(command.sandbox, at, f"its last sandbox was stopped: {command.reason}")
