"""Replay a journal: feed its events to a scheduler again and compare the commands."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.assemble import assemble
from aliquot.core.commands import Command
from aliquot.core.errors import EventError, InputError
from aliquot.core.scheduler import Scheduler
from aliquot.live.invocations.journal import snapshot
from aliquot.live.invocations.journal.format import in_format, read_step
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store.base import JournalEntry, StoreError
from aliquot.live.store.journal import read_journal


class ReplayDifference(Struct, frozen=True):
    """The first step of a segment whose commands differ from those in the journal."""

    segment: int
    number: int
    now: float
    then: list[Command]
    again: list[Command]


class ReplayResult(Struct, frozen=True):
    """The counts of a replay, and the differences that it found."""

    segments: int
    steps: int
    events: int
    commands: int
    policies: list[str]
    differences: list[ReplayDifference]
    skipped: list[int]  # segments of an older format whose run began in a segment that is not there


def replay(entries: Iterable[JournalEntry], on_step: Callable[[], None] | None = None) -> ReplayResult:
    """Replay every segment from its snapshot on, and leave a segment at its first difference."""
    replayer = _Replayer()
    for entry in _in_order(entries):
        if entry.number == 0:
            replayer.open(entry)
        elif replayer.take(entry) and on_step is not None:
            on_step()
    return replayer.result()


class _Replayer:
    """Feeds the steps of a journal through the core, segment by segment, and compares the commands."""

    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None
        self._head: snapshot.SchedulerSnapshot | None = None
        self._next_event = 0  # its number in the run of the server that wrote the journal
        self._segments = self._steps = self._events = self._commands = 0
        self._policies: list[str] = []
        self._differences: list[ReplayDifference] = []
        self._skipped: list[int] = []

    def open(self, entry: JournalEntry) -> None:
        self._head = snapshot.read(entry.body)
        if self._head.format == snapshot.FORMAT:
            self._begin(snapshot.restore(self._head))

    def take(self, entry: JournalEntry) -> bool:
        """Replay a step, unless its segment cannot be replayed or has differed before."""
        if self._head is None:
            return False
        try:
            step = read_step(entry.body, self._head.format)
        except msgspec.DecodeError as error:
            raise InputError(
                f"journal: segment {entry.segment}, entry {entry.number} cannot be read: {error}"
            ) from error
        if entry.number == 1 and self._head.format != snapshot.FORMAT:
            self._open_older(self._head, entry.segment, step)
        if self._scheduler is None:
            return False
        self._next_event = step.first + len(step.events)
        again = in_format(_step(self._scheduler, step), self._head.format)
        self._steps += 1
        self._events += len(step.events)
        self._commands += len(step.commands)
        if again != step.commands:
            self._differences.append(ReplayDifference(entry.segment, entry.number, step.now, step.commands, again))
            self._scheduler = None
        return True

    def result(self) -> ReplayResult:
        return ReplayResult(
            self._segments, self._steps, self._events, self._commands,
            self._policies, self._differences, self._skipped,
        )  # fmt: skip

    def _open_older(self, head: snapshot.SchedulerSnapshot, segment: int, step: JournalStep) -> None:
        """Begin a segment whose snapshot cannot be restored.

        The first segment of a server's run begins with a new scheduler, and the next ones where the one before ended.
        """
        if step.first == 0:
            self._begin(assemble(head.settings))
        elif self._scheduler is not None and step.first == self._next_event:
            self._segments += 1
        else:
            self._scheduler = None
            self._skipped.append(segment)

    def _begin(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._segments += 1
        name = "+".join(scheduler.policy_names)
        if name not in self._policies:
            self._policies.append(name)


def replay_file(path: Path, on_step: Callable[[], None] | None = None) -> ReplayResult:
    """Replay the journal of a data directory, or of its database file. A running server may be writing it."""
    try:
        return replay(read_journal(path), on_step)
    except StoreError as error:
        raise InputError(f"JOURNAL: {error}") from error


def _step(scheduler: Scheduler, step: JournalStep) -> list[Command]:
    try:
        return scheduler.step(step.now, step.events)
    except EventError:  # it was refused then, too; the other events take effect with the next step
        return []


def _in_order(entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
    """Yield the entries, and raise `InputError` if one is missing."""
    segment, number = -1, -1
    for entry in entries:
        if entry.segment != segment:
            if entry.number != 0:
                raise InputError(
                    f"journal: segment {entry.segment} begins with entry {entry.number}, not with its head"
                )
        elif entry.number != number + 1:
            raise InputError(f"journal: segment {segment} has entry {entry.number} after {number}")
        segment, number = entry.segment, entry.number
        yield entry
