"""Read the steps of a journal with the time of day of each, from the beginning of a segment on."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from aliquot.live.invocations.journal import snapshot
from aliquot.live.invocations.journal.format import read_step
from aliquot.live.invocations.journal.snapshot import SchedulerSnapshot
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store.base import JournalEntry
from aliquot.live.store.journal import SegmentHead


class TimedStep(NamedTuple):
    """A step, and when it happened."""

    step: JournalStep
    at: float  # epoch seconds
    before: SchedulerSnapshot | None  # the state before it, if the reading or a run of the server begins with it


class _HeadTime(msgspec.Struct, frozen=True):
    """The part of a snapshot that tells its time and format, without the state."""

    taken_ms: int
    format: int = 1


def rows_before(heads: Iterator[SegmentHead], at_ms: int) -> list[int]:
    """Return the first rows of the readable segments that begin before the time, oldest first.

    If there is none, it is the first row of the oldest readable segment.
    """
    readable, before = [], []
    for head in heads:
        try:
            taken = msgspec.msgpack.decode(head.body, type=_HeadTime)
        except msgspec.DecodeError:  # it is damaged
            continue
        if taken.format == snapshot.FORMAT:
            readable.append(head.row)
            if taken.taken_ms <= at_ms:
                before.append(head.row)
    return before or readable[:1]


def timed_steps(entries: Iterator[JournalEntry]) -> Iterator[TimedStep]:
    """Yield the steps, up to a segment that cannot be read. Raises `InputError` for another version's journal."""
    head: SchedulerSnapshot | None = None
    offset_s: float | None = None  # from the scheduler's clock to epoch seconds
    for entry in entries:
        if entry.number == 0:
            head = snapshot.read(entry.body)
            continue
        if head is None:
            return
        step = read_step(entry.body, head.format)
        before = None
        if entry.number == 1 and (offset_s is None or step.first == 0):
            if head.format != snapshot.FORMAT:
                return
            before = head
            offset_s = head.taken_ms / 1000 - step.now
        if offset_s is None:
            return
        yield TimedStep(step, step.now + offset_s, before)
