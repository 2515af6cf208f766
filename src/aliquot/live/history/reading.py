"""Find a call in the journal of a data folder, and replay the core around it.

A replay begins at the snapshot of a segment, so only the segments since then are read. The causes of a wait come from
the scheduler itself in the state that it had at each step.
"""

from collections.abc import Iterator
from math import inf
from pathlib import Path

from aliquot.core.errors import EventError, InputError
from aliquot.core.scheduler import Scheduler
from aliquot.live.history.records import CallTimeline
from aliquot.live.history.steps import rows_before, timed_steps
from aliquot.live.history.tracking import CallTracker
from aliquot.live.invocations.journal import snapshot
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store.base import JournalEntry
from aliquot.live.store.journal import SegmentHead, read_heads, read_journal

MAX_OLDER_SEGMENTS = 3  # looked at if a clock was changed, so that the call is not where its time says
RECOVERY_S = 10.0  # after its start a server takes up the calls of the one before


class HistoryMissingError(Exception):
    """The journal does not have the call. The text says why."""


def read_timeline(data: Path, invocation: str, near_ms: int) -> CallTimeline:
    """Return the timeline of a call that arrived at about `near_ms`. Raises `HistoryMissingError` and `InputError`."""
    rows = _first_rows(read_heads(data), near_ms)
    if not rows:
        raise HistoryMissingError("the journal does not reach back to it")
    found: CallTimeline | None = None
    for row in rows:
        tracker = CallTracker(invocation)
        began_s = _follow(tracker, read_journal(data, after=row - 1))
        timeline = tracker.timeline()
        if found is not None and timeline is None:
            return found
        if timeline is not None and timeline.arrived - began_s > RECOVERY_S:
            return timeline
        found = timeline or found  # a call that came with the start of a server may have come before
    if found is not None:
        return found
    raise HistoryMissingError("the journal has no such call; sequences and workflows have none, their parts have")


def _first_rows(heads: Iterator[SegmentHead], near_ms: int) -> list[int]:
    """Return the first rows of the segments to begin with: the last one taken before the time, then a few older."""
    return rows_before(heads, near_ms)[: -MAX_OLDER_SEGMENTS - 1 : -1]


def _follow(tracker: CallTracker, entries: Iterator[JournalEntry]) -> float:
    """Replay the entries until the call has ended. Return when the first run of a server began, in epoch seconds."""
    scheduler: Scheduler | None = None
    began_s: float | None = None
    for step, at, before in timed_steps(entries):
        if before is not None:
            scheduler = snapshot.restore(before)
            tracker.begin_run(scheduler)
            if began_s is None:
                began_s = at if step.first == 0 else -inf
        if scheduler is None:
            break
        _perform(scheduler, step)
        tracker.take(step, scheduler, at)
        if tracker.has_ended:
            break
    return -inf if began_s is None else began_s


def _perform(scheduler: Scheduler, step: JournalStep) -> None:
    try:
        again = scheduler.step(step.now, step.events)
    except EventError:  # it was refused then, too
        return
    if again != step.commands:
        raise InputError(f"journal: a replay differs at step {step.first}; aliquot replay shows where")
