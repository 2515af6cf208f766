"""Follow one call through the steps of a replayed journal."""

from collections import defaultdict
from typing import NamedTuple

from aliquot.core.commands import Complete, Dispatch, Fail, Reject, Start, StartSandbox, StopSandbox, UnloadMemory
from aliquot.core.events import InvocationArrived, SandboxLost
from aliquot.core.explaining import WaitCause, explain_wait
from aliquot.core.lifecycle import InvocationState, SandboxState
from aliquot.core.model import FlowKey
from aliquot.core.records import Invocation, Sandbox
from aliquot.core.scheduler import Scheduler
from aliquot.live.history.records import CallEnd, CallTimeline, HeldTime, Phase, Piece, PlacedCall, StartCause
from aliquot.live.invocations.journal.writer import JournalStep

_PHASES = {SandboxState.STARTING: Phase.START, SandboxState.LOADING: Phase.LOAD, SandboxState.BUSY: Phase.BEHIND}


class _OpenPiece:
    """The piece that goes on: its phase and cause, and who held what it needed."""

    def __init__(self, phase: Phase, start: float, wait: WaitCause | None) -> None:
        self.phase = phase
        self.start = start
        self.wait = wait
        self._held: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._since = start

    def goes_on(self, phase: Phase, wait: WaitCause | None, now: float) -> bool:
        """Return whether the call is still in this piece, whose details may have changed."""
        self._hold(now)
        same = phase is self.phase and (wait and wait.cause) == (self.wait and self.wait.cause)
        if same and wait is not None:
            self.wait = WaitCause(wait.cause, self.wait.detail if self.wait else wait.detail, wait.holders)
        return same

    def closed(self, now: float) -> Piece:
        self._hold(now)
        ordered = sorted(self._held.items(), key=lambda item: (-item[1], item[0]))
        holders = tuple(HeldTime(*key, seconds) for key, seconds in ordered)
        cause, detail = (self.wait.cause, self.wait.detail) if self.wait is not None else ("", "")
        return Piece(self.phase, self.start, now, str(cause), detail, holders)

    def _hold(self, now: float) -> None:
        for holder in self.wait.holders if self.wait is not None else ():
            self._held[holder.tenant, holder.function] += holder.runs * (now - self._since)
        self._since = now


class _LastSandbox(NamedTuple):
    """The last sandbox of a function that ended or was swapped out."""

    reason: str
    at: float
    room_for: str


class CallTracker:
    """Builds the timeline of one call. It is given every step of the journal, with the scheduler after it."""

    def __init__(self, invocation: str) -> None:
        self._invocation = invocation
        self._flows: dict[int, FlowKey] = {}  # of sandboxes
        self._last: dict[FlowKey, _LastSandbox] = {}
        self._flow: FlowKey | None = None
        self._policies = ""
        self._arrived = 0.0
        self._dispatches: list[PlacedCall] = []
        self._pieces: list[Piece] = []
        self._open: _OpenPiece | None = None
        self._end = CallEnd.OPEN
        self._reason = ""
        self._now = 0.0

    @property
    def has_arrived(self) -> bool:
        return self._flow is not None

    @property
    def has_ended(self) -> bool:
        return self._end is not CallEnd.OPEN

    def begin_run(self, scheduler: Scheduler) -> None:
        """Take note of the sandboxes that a server's run begins with. An open call waits for the server."""
        self._flows = {number: sandbox.flow.key for number, sandbox in scheduler.pool.sandboxes.items()}
        self._last.clear()
        self._policies = "+".join(scheduler.policy_names)
        known = scheduler.invocations.get(self._invocation)
        if known is None and self._open is not None:
            self._change(Phase.RESTART, None, self._now)

    def take(self, step: JournalStep, scheduler: Scheduler, now: float) -> None:
        """Take a step, with the scheduler in the state after it. `now` is its time in epoch seconds."""
        for event in step.events:
            if isinstance(event, InvocationArrived) and event.invocation == self._invocation:
                self._arrive(FlowKey(event.tenant, event.function), now)
            elif isinstance(event, SandboxLost):
                self._note(event.sandbox, f"its last sandbox was lost: {event.reason}", now, "")
        for command in step.commands:
            self._take_command(command, scheduler, now)
        self._now = now
        if self._flow is None or self.has_ended:
            return
        invocation = scheduler.invocations.get(self._invocation)
        if invocation is not None:
            self._change(*_phase_of(invocation), now)

    def timeline(self) -> CallTimeline | None:
        """Return the timeline as far as the journal has it, or None if the call is not in it."""
        if self._flow is None:
            return None
        pieces = list(self._pieces)
        if self._open is not None:
            interrupted = self._open.phase is Phase.RESTART
            if interrupted and not self.has_ended:
                self._end, self._reason = CallEnd.INTERRUPTED, "the server was killed, and did not run it again"
            else:
                pieces.append(self._open.closed(self._now))
        ended = pieces[-1].end if pieces else self._arrived
        return CallTimeline(
            self._invocation,
            *self._flow,
            self._policies,
            self._arrived,
            ended,
            self._end,
            self._reason,
            tuple(self._dispatches),
            tuple(pieces),
        )

    def _arrive(self, flow: FlowKey, now: float) -> None:
        if self._flow is None:
            self._flow, self._arrived = flow, now

    def _take_command(self, command: object, scheduler: Scheduler, now: float) -> None:
        if isinstance(command, StartSandbox):
            self._flows[command.sandbox] = FlowKey(command.tenant, command.function)
        elif isinstance(command, StopSandbox | UnloadMemory):
            verb = "stopped" if isinstance(command, StopSandbox) else "moved out of device memory"
            room_for = _name_of(command.room_for, scheduler)
            self._note(command.sandbox, f"its last sandbox was {verb}: {command.reason}", now, room_for)
        elif isinstance(command, Dispatch):
            if command.invocation == self._invocation:
                self._dispatch(command, scheduler, now)
        elif isinstance(command, Complete | Fail | Reject) and command.invocation == self._invocation:
            ends = {Complete: CallEnd.COMPLETED, Fail: CallEnd.FAILED, Reject: CallEnd.REFUSED}
            self._finish(ends[type(command)], getattr(command, "reason", ""), now)

    def _dispatch(self, command: Dispatch, scheduler: Scheduler, now: float) -> None:
        cause = None
        if command.start is not Start.WARM and self._flow is not None:
            cause = self._start_cause(self._flow, command, scheduler)
        place = tuple(command.place)
        self._dispatches.append(PlacedCall(now, command.sandbox, place, command.start.value, command.reason, cause))

    def _start_cause(self, flow: FlowKey, command: Dispatch, scheduler: Scheduler) -> StartCause:
        others = [
            sandbox
            for sandbox in scheduler.pool.sandboxes.values()
            if sandbox.flow.key == flow and sandbox.id != command.sandbox and _is_taken(sandbox)
        ]
        if others:
            return StartCause(f"all {len(others)} other sandboxes of its function were busy or starting")
        last = self._last.get(flow)
        if last is None:
            return StartCause("its function had no sandbox before, as far as the journal was read")
        return StartCause(last.reason, last.at, last.room_for)

    def _note(self, sandbox: int, reason: str, now: float, room_for: str) -> None:
        flow = self._flows.get(sandbox)
        if flow is not None:
            self._last[flow] = _LastSandbox(reason, now, room_for)

    def _finish(self, end: CallEnd, reason: str, now: float) -> None:
        if self._open is not None:
            self._pieces.append(self._open.closed(now))
            self._open = None
        self._end, self._reason = end, reason

    def _change(self, phase: Phase, wait: WaitCause | None, now: float) -> None:
        if self._open is not None:
            if self._open.goes_on(phase, wait, now):
                return
            self._pieces.append(self._open.closed(now))
        self._open = _OpenPiece(phase, now, wait)


def _phase_of(invocation: Invocation) -> tuple[Phase, WaitCause | None]:
    if invocation.state is InvocationState.QUEUED:
        return Phase.WAIT, explain_wait(invocation)
    if invocation.state is InvocationState.PREPARING and invocation.sandbox is not None:
        return _PHASES.get(invocation.sandbox.state, Phase.START), None
    return Phase.RUN, None


def _is_taken(sandbox: Sandbox) -> bool:
    return bool(sandbox.in_flight) or sandbox.state is SandboxState.STARTING


def _name_of(invocation: str | None, scheduler: Scheduler) -> str:
    """Return the function of a call as namespace/name, or an empty text."""
    found = scheduler.invocations.get(invocation) if invocation is not None else None
    return "" if found is None else "/".join(found.flow.key)
