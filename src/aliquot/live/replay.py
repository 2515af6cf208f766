"""Feed a live run's events through the core once more: it must command the same."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from aliquot.core.commands import Command
from aliquot.core.errors import EventError, InputError
from aliquot.core.scheduler import Scheduler
from aliquot.live import snapshot
from aliquot.live.journal import Step
from aliquot.live.store.base import JournalEntry, StoreError
from aliquot.live.store.journal import read_journal


class Difference(Struct, frozen=True):
    """The first step of a segment that did not come out as it did then."""

    segment: int
    number: int
    now: float
    then: list[Command]
    again: list[Command]


class Replayed(Struct, frozen=True):
    segments: int
    steps: int
    events: int
    commands: int
    policies: list[str]
    differences: list[Difference]


def replay(entries: Iterable[JournalEntry], on_step: Callable[[], None] | None = None) -> Replayed:
    """Every segment from its snapshot on. A segment that differs is left at its first difference."""
    decode = msgspec.msgpack.Decoder(Step).decode
    segments = steps = events = commands = 0
    policies: list[str] = []
    differences: list[Difference] = []
    scheduler: Scheduler | None = None
    for entry in _in_order(entries):
        if entry.number == 0:
            head = snapshot.read(entry.body)
            scheduler = snapshot.restore(head)
            segments += 1
            name = "+".join(scheduler.policy_names)
            policies += [name] if name not in policies else []
            continue
        if scheduler is None:  # the segment has gone astray
            continue
        try:
            step = decode(entry.body)
        except msgspec.DecodeError as error:
            raise InputError(
                f"journal: segment {entry.segment}, entry {entry.number} cannot be read: {error}"
            ) from error
        again = _step(scheduler, step)
        steps += 1
        events += len(step.events)
        commands += len(step.commands)
        if on_step is not None:
            on_step()
        if again != step.commands:
            differences.append(Difference(entry.segment, entry.number, step.now, step.commands, again))
            scheduler = None
    return Replayed(segments, steps, events, commands, policies, differences)


def replay_file(path: Path, on_step: Callable[[], None] | None = None) -> Replayed:
    """The journal of a data directory, or of the database file in it; a server may be writing it."""
    try:
        return replay(read_journal(path), on_step)
    except StoreError as error:
        raise InputError(f"JOURNAL: {error}") from error


def _step(scheduler: Scheduler, step: Step) -> list[Command]:
    try:
        return scheduler.step(step.now, step.events)
    except EventError:  # then too: what follows from the step's other events comes with the next one
        return []


def _in_order(entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
    """The entries, after a look that none is missing."""
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
