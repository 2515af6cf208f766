"""The historian's work: keep the index up to date, and answer questions from it."""

import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from aliquot.live.history.historian.journal_follower import JournalFollower, first_rows, restored
from aliquot.live.history.historian.record_follower import RecordFollower
from aliquot.live.history.historian.wait_causes import WaitCauses
from aliquot.live.history.index.calls import MAX_CALLS, IndexedCall
from aliquot.live.history.index.journal_index import CallRecord, JournalIndex
from aliquot.live.history.index.searching import search
from aliquot.live.history.index.telling import SeriesAnswer, decisions_of, figures_of, slices_of
from aliquot.live.history.messages import (
    DecisionList,
    DeviceSlices,
    FunctionFigures,
    Question,
    Search,
    SeriesOf,
)
from aliquot.live.store.base import StoreError

LAST_READ_S = 1.0


class HistorianJob(Protocol):
    """A job beside the questions, such as sending spans to a collector."""

    def call_ended(self, call: IndexedCall, record: CallRecord) -> None:
        """Take a call that has ended and whose record is written. It must be quick, because it delays reading."""
        ...

    def work(self, now_s: float) -> float:
        """Do a small part of the work. Return the seconds until it wants to work again. `now_s` is monotonic."""
        ...

    def report(self) -> bytes:
        """Return what the server is to know. It is sent when it changes."""
        ...

    def close(self) -> None:
        """End the job, because the server ends."""
        ...


class Historian:
    """Reads the journal and the records, and answers questions."""

    def __init__(self, data: Path, jobs: Sequence[HistorianJob] = (), max_calls: int = MAX_CALLS) -> None:
        """Read nothing yet."""
        self._data = data
        self._jobs = jobs
        self._max_calls = max_calls
        self.index = JournalIndex(self._tell_jobs if jobs else None, max_calls)
        self._journal: JournalFollower | None = None
        self._records: RecordFollower | None = None
        self._pending: deque[CallRecord] = deque()
        self._causes: WaitCauses | None = None
        self.complete = False  # whether all was read that was there when it was looked at last

    def _tell_jobs(self, call: IndexedCall, record: CallRecord) -> None:
        for job in self._jobs:
            job.call_ended(call, record)

    # --- reading ----------------------------------------------------------------------------------------

    def catch_up(self, budget_s: float) -> None:
        """Read what the server has written, for at most about this time. Raises `StoreError`."""
        deadline = time.monotonic() + budget_s
        try:
            journal, records = self._followers()
            self.complete = False
            while self._read_part(journal, records):
                if time.monotonic() >= deadline:
                    return
            self.complete = True
        except sqlite3.Error as error:
            self._close_followers()
            raise StoreError(f"the journal cannot be read: {error}") from error

    def _followers(self) -> tuple[JournalFollower, RecordFollower]:
        if self._journal is None or self._records is None:
            rows = first_rows(self._data)
            # After an error the index begins anew, because it is not known what was read.
            self.index = JournalIndex(self._tell_jobs if self._jobs else None, self._max_calls)
            self._causes = None
            self._pending.clear()
            self._journal = JournalFollower(self._data, rows[0] if rows else 0)
            self._records = RecordFollower(self._data, self._max_calls)
        return self._journal, self._records

    def _read_part(self, journal: JournalFollower, records: RecordFollower) -> bool:
        """Read a row of the journal, and the records of the calls that ended in it. Return whether there is more."""
        steps = journal.next_steps()
        until_s = float("inf")
        for step, at, before in steps or ():
            if before is not None:
                self.index.begin(restored(before), at)
            self.index.take(step, at)
            until_s = at
        if steps == []:
            return True
        found = 0
        while self._pending or self._pending_more(records):
            if self._pending[0].end > until_s:
                break
            self.index.record(self._pending.popleft())
            found += 1
        return steps is not None or found > 0

    def _pending_more(self, records: RecordFollower) -> bool:
        self._pending.extend(records.next_records())
        return bool(self._pending)

    def explain(self, budget_s: float) -> bool:
        """Replay a part of the journal for the causes of waits. Return whether there is more. Raises `StoreError`."""
        deadline = time.monotonic() + budget_s
        try:
            if self._causes is None:
                self._causes = WaitCauses(self._data, self.index.calls, first_rows(self._data))
            while self._causes.replay_row():
                if time.monotonic() >= deadline:
                    return True
        except sqlite3.Error as error:
            raise StoreError(f"the journal cannot be replayed: {error}") from error
        return False

    # --- questions --------------------------------------------------------------------------------------

    def answer(self, question: Question) -> bytes:
        """Return the answer as JSON."""
        return msgspec.json.encode(self._answer(question))

    def _answer(self, question: Question) -> object:
        index, complete = self.index, self.complete
        match question:
            case Search():
                since_s = self._causes.since_s if self._causes is not None else None
                return search(index.calls, question, complete=complete, explained_since=since_s)
            case DecisionList():
                return decisions_of(index.decisions, question, complete=complete)
            case DeviceSlices():
                return slices_of(index.sandboxes, question, complete=complete)
            case FunctionFigures():
                return figures_of(index.calls, question, time.time(), complete=complete)
            case SeriesOf():
                return self._series(question)

    def _series(self, question: SeriesOf) -> SeriesAnswer:
        viewer, series = question.viewer, self.index.series
        begin, end = int(max(question.begin_s, viewer.since_s)), int(question.end_s)
        columns = series.read(viewer.tenant or question.namespace, question.names, begin, end, question.step_s)
        totals: dict[str, dict[str, float]] = {}
        for name in series.namespaces if viewer.is_operator else ():
            own = series.read(name, question.names, begin, end, question.step_s).values
            totals[name] = {measure: sum(values) for measure, values in own.items()}
        return SeriesAnswer(columns.step, columns.times, columns.values, totals, self.complete)

    def _close_followers(self) -> None:
        for follower in (self._journal, self._records):
            if follower is not None:
                follower.close()
        self._journal = self._records = None

    def close(self) -> None:
        if self._jobs:
            with suppress(StoreError):  # what the server has written before its end
                self.catch_up(LAST_READ_S)
        self._close_followers()
        if self._causes is not None:
            self._causes.close()
        for job in self._jobs:
            job.close()
