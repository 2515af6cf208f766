"""The journal: every step of the scheduler with its events and commands, so that a live run can be replayed.

It consists of segments. Each begins with a snapshot, so that old segments can be deleted and the rest still replays.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from aliquot.clock import now_ms
from aliquot.config import PolicySettings
from aliquot.core.commands import Command
from aliquot.core.events import Event
from aliquot.core.scheduler import Scheduler
from aliquot.core.units import MIB
from aliquot.live.invocations.journal import snapshot
from aliquot.live.store.base import Store

# A question about a call replays its segment from the beginning, so segments are short. A snapshot delays calls, so
# there are few of them when they are large.
MIN_SEGMENT_BYTES = 16 * MIB
MIN_SNAPSHOTS = 20  # size of a segment, counted in snapshots


class JournalStep(Struct, frozen=True, array_like=True, gc=False):
    """The events of one step and the commands that followed. Events are numbered consecutively."""

    first: int  # the number of its first event
    now: float
    events: list[Event]
    commands: list[Command]


class JournalWriter:
    """Writes the steps of one server's run to the store."""

    def __init__(self, store: Store, scheduler: Scheduler, settings: PolicySettings) -> None:
        self._store = store
        self._scheduler = scheduler
        self._settings = settings
        self._encode = msgspec.msgpack.Encoder().encode
        self._events = 0
        self._bytes = self._max_bytes = MIN_SEGMENT_BYTES  # counts as full, so that the first step opens a segment

    def before_step(self) -> None:
        """Open a new segment if the current one is full. Its snapshot is the state before the step."""
        if self._bytes < self._max_bytes:
            return
        body = snapshot.take(self._scheduler, self._settings, now_ms=now_ms())
        self._store.open_segment(body)
        self._bytes = len(body)
        self._max_bytes = max(MIN_SEGMENT_BYTES, MIN_SNAPSHOTS * len(body))

    def after_step(self, now: float, events: Sequence[Event], commands: Sequence[Command]) -> None:
        body = self._encode((self._events, now, events, commands))
        self._events += len(events)
        self._bytes += len(body)
        self._store.journal(body)
