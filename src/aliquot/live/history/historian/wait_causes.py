"""Find the cause of each call's wait by replaying the journal, the newest segment first.

The scheduler itself is asked when a call arrives and when it comes to the front of its queue. The cause that lasted
longer is kept, so a search finds calls by it. `aliquot why` looks at every step and tells all causes of one call.
"""

from pathlib import Path

from aliquot.core.commands import Dispatch
from aliquot.core.errors import EventError
from aliquot.core.events import InvocationArrived
from aliquot.core.explaining import Cause, explain_wait
from aliquot.core.lifecycle import InvocationState
from aliquot.core.model import FlowKey
from aliquot.core.records import Invocation
from aliquot.core.scheduler import Scheduler
from aliquot.live.history.historian.journal_follower import JournalFollower, restored
from aliquot.live.history.index.calls import CallTable
from aliquot.live.history.steps import TimedStep


class _Waiting:
    """A call that waits: since when and why."""

    __slots__ = ("arrived", "behind_s", "cause")

    def __init__(self, arrived: float, cause: str) -> None:
        self.arrived = arrived
        self.behind_s = 0.0  # the time behind other calls of its function
        self.cause = cause  # at the front of its queue, or when it arrived


class SegmentCauses:
    """Replays a segment, and on beyond it if nothing ends it."""

    def __init__(self, data: Path, calls: CallTable, row: int, last_row: int | None) -> None:
        """Begin at a row with the head of a segment. Raises `StoreError`."""
        self._calls = calls
        self._follower = JournalFollower(data, row)
        self._last_row = last_row
        self._scheduler: Scheduler | None = None
        self._waiting: dict[str, _Waiting] = {}
        self.began_s: float | None = None

    def close(self) -> None:
        self._follower.close()

    def replay_row(self) -> bool:
        """Replay the next row. Return whether there may be more."""
        if self._last_row is not None and self._follower.row >= self._last_row:
            return False
        steps = self._follower.next_steps()
        for timed in steps or ():
            self._replay(timed)
        return steps is not None

    def _replay(self, timed: TimedStep) -> None:
        step, at, before = timed
        if before is not None:
            self._begin_run(restored(before), at, at - step.now)
        scheduler = self._scheduler
        if scheduler is None:
            return
        try:
            scheduler.step(step.now, step.events)
        except EventError:  # it was refused then, too
            return
        fronts: set[FlowKey] = set()
        for command in step.commands:
            if isinstance(command, Dispatch):
                self._end(command.invocation, at, fronts)
        for event in step.events:
            if isinstance(event, InvocationArrived):
                self._begin(scheduler.invocations.get(event.invocation), at)
        for key in sorted(fronts):
            self._come_to_front(scheduler, key, at)

    def _begin_run(self, scheduler: Scheduler | None, at: float, offset_s: float) -> None:
        """Begin with this state, in which calls may wait. Without it nothing is known until the next one."""
        self._scheduler = scheduler
        self._waiting.clear()
        if self.began_s is None:
            self.began_s = at
        for invocation in () if scheduler is None else scheduler.invocations.values():
            self._begin(invocation, offset_s + invocation.arrived)

    def _begin(self, invocation: Invocation | None, at: float) -> None:
        if invocation is None or invocation.state is not InvocationState.QUEUED:
            return
        flow = invocation.flow
        behind = invocation.id in flow.queue and flow.head is not invocation
        cause = Cause.OWN_QUEUE if behind else explain_wait(invocation).cause
        self._waiting[invocation.id] = _Waiting(at, str(cause))

    def _end(self, name: str, at: float, fronts: set[FlowKey]) -> None:
        waiting = self._waiting.pop(name, None)
        call = self._calls.get(name)
        if call is not None:
            fronts.add(call.flow)
        if waiting is None or call is None:
            return
        front_s = at - waiting.arrived - waiting.behind_s
        call.cause = str(Cause.OWN_QUEUE) if waiting.behind_s > front_s else waiting.cause

    def _come_to_front(self, scheduler: Scheduler, key: FlowKey, at: float) -> None:
        """Ask why the call waits that is now the first of its function."""
        flow = scheduler.registry.flows.get(key)
        if flow is None or not flow.queue:
            return
        waiting = self._waiting.get(flow.head.id)
        if waiting is not None and waiting.cause == Cause.OWN_QUEUE:
            waiting.behind_s = at - waiting.arrived
            waiting.cause = str(explain_wait(flow.head).cause)


class WaitCauses:
    """Replays the segments of the index, one after another, as far as there is time."""

    def __init__(self, data: Path, calls: CallTable, rows: list[int]) -> None:
        """Take the first row of each segment, the oldest first. Raises `StoreError`."""
        self._data = data
        self._calls = calls
        self._rows = rows
        self._newest = SegmentCauses(data, calls, rows[-1], None) if rows else None
        self._older: SegmentCauses | None = None
        self._done = len(rows) - 1  # segments from this one on are explained

    @property
    def since_s(self) -> float | None:
        """The time from which on the causes are known, or None before the first segment was replayed."""
        return None if self._newest is None else self._since_s

    _since_s: float | None = None

    def replay_row(self) -> bool:
        """Replay a part. Return whether there is more."""
        if self._newest is None:
            return False
        if self._newest.replay_row():
            return True
        if self._since_s is None:
            self._since_s = self._newest.began_s
        if self._older is None:
            if self._done == 0:
                return False
            self._older = SegmentCauses(self._data, self._calls, self._rows[self._done - 1], self._rows[self._done] - 1)
        if not self._older.replay_row():
            self._since_s = self._older.began_s or self._since_s
            self._older.close()
            self._older = None
            self._done -= 1
        return True

    def close(self) -> None:
        for part in (self._newest, self._older):
            if part is not None:
                part.close()
