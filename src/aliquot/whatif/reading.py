"""Read the last part of a server's journal. The server may be running."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.live.history.steps import rows_before, timed_steps
from aliquot.live.invocations.journal import snapshot
from aliquot.live.store.base import StoreError
from aliquot.live.store.journal import read_heads, read_journal
from aliquot.whatif.recording import MAX_CALLS, Recording

STEPS_BETWEEN_REPORTS = 1000
CLOCK_TOLERANCE_S = 60.0  # a segment may begin a little before its snapshot's time


class RecordedWindow(Struct, frozen=True):
    """The calls of a part of the journal, and the policies that ran."""

    recording: Recording
    settings: PolicySettings
    policies: tuple[str, ...]  # one of each kind
    from_s: float  # calls that arrived before this time only warm up the simulation; epoch seconds
    until_s: float


def read_window(
    data: Path,
    last_s: float,
    warm_up_s: float,
    now_s: float,
    *,
    max_calls: int = MAX_CALLS,
    on_steps: Callable[[int], None] | None = None,
) -> RecordedWindow:
    """Read the last seconds of a data folder's journal, and the time before that warms up. Raises `InputError`."""
    from_s = now_s - last_s
    begin_s = from_s - warm_up_s
    try:
        rows = rows_before(read_heads(data), round(1000 * (begin_s - CLOCK_TOLERANCE_S)))
        if not rows:
            raise InputError(f"--data: {data} has no journal that this version can read")
        return _read(data, rows[-1], begin_s, from_s, max_calls, on_steps)
    except StoreError as error:
        raise InputError(f"--data: {error}") from error


def _read(
    data: Path, row: int, begin_s: float, from_s: float, max_calls: int, on_steps: Callable[[int], None] | None
) -> RecordedWindow:
    recording = Recording(max_calls)
    settings: PolicySettings | None = None
    policies: tuple[str, ...] = ()
    until_s = from_s
    for number, (step, at, before) in enumerate(timed_steps(read_journal(data, after=row - 1))):
        if before is not None:
            scheduler = snapshot.restore(before)
            settings, policies = before.settings, scheduler.policy_names
            recording.begin(scheduler)
        recording.take(step, at)
        recording.forget_before(begin_s)
        until_s = max(until_s, at)
        if on_steps is not None and number % STEPS_BETWEEN_REPORTS == 0:
            on_steps(number)
    if settings is None:
        raise InputError(f"--data: the journal in {data} has no step yet")
    return RecordedWindow(recording, settings, policies, from_s, until_s)
