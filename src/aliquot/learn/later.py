"""Count which files are opened anywhere later in a session, for sets of files whose order does not repeat.

A chain of next steps finds the files of a workflow one after the other. If a session reads the same files in another
order each time, no single next step is likely although all files are certain. So these tables count, for each step and
for each step under a mark, which files were among the following ones.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from aliquot.learn.steps import USER, AccessStep, History, Session, marks_after, marks_of

AHEAD = 32  # steps after an open that count as later
AHEAD_OF_MARK = 256  # the same after a mark
_MAX_COUNTED_FILES = 512  # per context; beyond this the rarest half is dropped
_MIN_SHARE = 0.5  # a file that came less often after a context is not stored
_PRIOR = 2.0  # weight of the prior probability, in occurrences of the context


_Likely: TypeAlias = dict[int, tuple[float, float]]  # by file: probability, and number of files before it


class LaterCounts(Struct, frozen=True, array_like=True, gc=False):
    """The files that came later after one context."""

    seen: int
    constancy: float  # share of the files that came again at later occurrences
    files: list[int]
    counts: list[int]
    gaps: list[int]  # mean number of files before each


class LaterTables(Struct, frozen=True, array_like=True):
    """The counts of all contexts, stored in a version."""

    steps: list[AccessStep]  # each as last seen
    after: dict[int, LaterCounts]  # by the number of a step
    under_mark: dict[int, LaterCounts]  # by a mark and a step: `mark * len(steps) + step`

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "LaterTables":
        """Decode stored tables. Raises `msgspec.DecodeError`."""
        return msgspec.msgpack.decode(data, type=cls)


class LaterGuess(NamedTuple):
    """A file that is likely to be opened later."""

    file: str
    probability: float
    gap: float  # number of files before it


class LaterPredictor:
    """Predicts from `LaterTables`. Made once for many predictions."""

    def __init__(self, tables: LaterTables) -> None:
        self._tables = tables
        self._numbers = {step.file: number for number, step in enumerate(tables.steps)}

    def predict_later(self, history: History) -> list[LaterGuess]:
        """Return the files likely to be opened anywhere in the rest of the session."""
        number = self._numbers.get(history[-1].file) if history else None
        if number is None:
            return []
        marks = [self._numbers.get(mark.file) for mark in marks_of(history)]
        likely: _Likely = {}
        if history[-1].operation == USER and len(marks) > 1:
            tenants_mark = marks.pop(0)
            likely = {} if tenants_mark is None else _smoothed(self._tables.after.get(tenants_mark), {})
        likely = _smoothed(self._tables.after.get(number), likely)
        for mark in marks:
            if mark is not None:
                likely = _smoothed(self._tables.under_mark.get(mark * len(self._numbers) + number), likely)
        return [LaterGuess(self._tables.steps[file].file, *chance) for file, chance in likely.items()]


def _smoothed(later: LaterCounts | None, shorter: _Likely) -> _Likely:
    """Return the context's shares, smoothed by its constancy or the shorter context.

    Among many random files some have come every time by chance. If few files of a context come again, these will not
    either.
    """
    if later is None:
        return shorter
    likely = {file: (_PRIOR * chance / (later.seen + _PRIOR), gap) for file, (chance, gap) in shorter.items()}
    for file, count, gap in zip(later.files, later.counts, later.gaps, strict=True):
        before = max(later.constancy, shorter[file][0] if file in shorter else 0.0)
        likely[file] = ((count + _PRIOR * before) / (later.seen + _PRIOR), gap)
    return likely


class _LaterCounter:
    """Counts the later files of one context."""

    __slots__ = ("counts", "distinct", "gaps", "occurrences", "seen")

    def __init__(self) -> None:
        self.seen = self.distinct = self.occurrences = 0
        self.counts: dict[int, int] = {}
        self.gaps: dict[int, int] = {}

    def add(self, files: Iterable[int]) -> None:
        self.seen += 1
        for gap, file in enumerate(files):
            self.occurrences += 1
            self.gaps[file] = self.gaps.get(file, 0) + gap
            count = self.counts.get(file, 0)
            self.distinct += count == 0
            self.counts[file] = count + 1
        if len(self.counts) > _MAX_COUNTED_FILES:
            best = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))[: _MAX_COUNTED_FILES // 2]
            self.counts = dict(best)
            self.gaps = {file: self.gaps[file] for file in self.counts}

    def to_counts(self) -> LaterCounts:
        best = sorted(
            ((file, count) for file, count in self.counts.items() if count >= _MIN_SHARE * self.seen),
            key=lambda pair: (-pair[1], pair[0]),
        )
        constancy = (self.occurrences - self.distinct) / (self.distinct * (self.seen - 1) + 1)
        gaps = [self.gaps[file] // count for file, count in best]
        return LaterCounts(self.seen, constancy, [file for file, _ in best], [count for _, count in best], gaps)


def count_later(sessions: Iterable[Session]) -> LaterTables:
    """Count the later files of each step, and of each step under a mark."""
    numbers: dict[str, int] = {}
    steps: list[AccessStep] = []
    after: dict[int, _LaterCounter] = {}
    under_mark: dict[tuple[int, int], _LaterCounter] = {}
    for session in sessions:
        for step in session:
            number = numbers.setdefault(step.file, len(numbers))
            if number == len(steps):
                steps.append(step)
            steps[number] = step
        _count_session(session, numbers, after, under_mark)
    return LaterTables(
        steps,
        {number: counter.to_counts() for number, counter in after.items()},
        {mark * len(steps) + number: counter.to_counts() for (mark, number), counter in under_mark.items()},
    )


def _count_session(
    session: Session,
    numbers: dict[str, int],
    after: dict[int, _LaterCounter],
    under_mark: dict[tuple[int, int], _LaterCounter],
) -> None:
    marks: Session = []
    counted_until: dict[tuple[int | None, int], int] = {}  # end of each context's last window
    row = [numbers[step.file] for step in session]
    for position, (step, number) in enumerate(zip(session, row, strict=True)):
        if step.is_mark:
            marks = marks_after(marks, step)
        end = position + 1 + (AHEAD_OF_MARK if step.is_mark else AHEAD)
        # Each file once, in order.
        following = dict.fromkeys(row[at] for at in range(position + 1, min(end, len(row))) if not session[at].is_mark)
        if position >= counted_until.get((None, number), 0):
            counted_until[None, number] = end
            after.setdefault(number, _LaterCounter()).add(following)
        for mark in (numbers[one.file] for one in marks):
            if position >= counted_until.get((mark, number), 0):
                counted_until[mark, number] = end
                under_mark.setdefault((mark, number), _LaterCounter()).add(following)
