"""What is opened anywhere later in a session, once a step was seen: for sets of files whose order does not repeat.

A chain of next steps finds a workflow's files one after the other. Where a session reads the same files in another
order each time, no next step is likely, and yet all of them are certain. So it is counted, for every step and for every
step within a call, which files came among the next ones at all.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from aliquot.learn.steps import USER, AccessStep, History, Session, marks_of, under

AHEAD = 32  # files after an open that count as later; after a call or a beginning:
AHEAD_OF_MARK = 256
_MAX_COUNTED_FILES = 512  # files noted of one context; beyond that those seen least are dropped
_MIN_SHARE = 0.5  # a file that is less likely is not kept: nobody would fetch it
_PRIOR = 2.0  # how many sights of a context what is known before is worth


_Chances: TypeAlias = dict[int, tuple[float, float]]  # by file: how likely, and after how many others


class LaterCounts(Struct, frozen=True, array_like=True, gc=False):
    seen: int
    constancy: float  # of all that could have come again at later sights, how much did
    files: list[int]
    counts: list[int]
    gaps: list[int]  # how many other files came before each, in the mean


class LaterTables(Struct, frozen=True, array_like=True):
    steps: list[AccessStep]  # as last seen
    after: dict[int, LaterCounts]  # by a step's number
    within: dict[int, LaterCounts]  # by a mark's and a step's: `mark * len(steps) + step`

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "LaterTables":
        """Raises `msgspec.DecodeError`."""
        return msgspec.msgpack.decode(data, type=cls)


class LaterGuess(NamedTuple):
    file: str
    probability: float
    gap: float  # files that come before it


class LaterPredictor:
    """Asks a `LaterTables`; made once for many questions."""

    def __init__(self, reach: LaterTables) -> None:
        self._reach = reach
        self._numbers = {step.file: number for number, step in enumerate(reach.steps)}

    def later(self, history: History) -> list[LaterGuess]:
        """Files that are likely to be opened at all from here on."""
        number = self._numbers.get(history[-1].file) if history else None
        if number is None:
            return []
        marks = [self._numbers.get(mark.file) for mark in marks_of(history)]
        likely: _Chances = {}
        if history[-1].operation == USER and len(marks) > 1:
            anybodys = marks.pop(0)
            likely = {} if anybodys is None else _chances(self._reach.after.get(anybodys), {})
        likely = _chances(self._reach.after.get(number), likely)
        for mark in marks:
            if mark is not None:
                likely = _chances(self._reach.within.get(mark * len(self._numbers) + number), likely)
        return [LaterGuess(self._reach.steps[file].file, *chance) for file, chance in likely.items()]


def _chances(later: LaterCounts | None, shorter: _Chances) -> _Chances:
    """The context's own shares, leaning on what is known without them: its constancy, or the shorter context.

    Of many files that come by chance some will have come every time so far: where little else comes again, neither
    will they.
    """
    if later is None:
        return shorter
    likely = {file: (_PRIOR * chance / (later.seen + _PRIOR), gap) for file, (chance, gap) in shorter.items()}
    for file, count, gap in zip(later.files, later.counts, later.gaps, strict=True):
        before = max(later.constancy, shorter[file][0] if file in shorter else 0.0)
        likely[file] = ((count + _PRIOR * before) / (later.seen + _PRIOR), gap)
    return likely


class _LaterCounter:
    __slots__ = ("counts", "gaps", "kinds", "seen", "sights")

    def __init__(self) -> None:
        self.seen = self.kinds = self.sights = 0
        self.counts: dict[int, int] = {}
        self.gaps: dict[int, int] = {}

    def add(self, files: Iterable[int]) -> None:
        self.seen += 1
        for gap, file in enumerate(files):
            self.sights += 1
            self.gaps[file] = self.gaps.get(file, 0) + gap
            count = self.counts.get(file, 0)
            self.kinds += count == 0
            self.counts[file] = count + 1
        if len(self.counts) > _MAX_COUNTED_FILES:
            best = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))[: _MAX_COUNTED_FILES // 2]
            self.counts = dict(best)
            self.gaps = {file: self.gaps[file] for file in self.counts}

    def kept(self) -> LaterCounts:
        best = sorted(
            ((file, count) for file, count in self.counts.items() if count >= _MIN_SHARE * self.seen),
            key=lambda pair: (-pair[1], pair[0]),
        )
        constancy = (self.sights - self.kinds) / (self.kinds * (self.seen - 1) + 1)
        gaps = [self.gaps[file] // count for file, count in best]
        return LaterCounts(self.seen, constancy, [file for file, _ in best], [count for _, count in best], gaps)


def count_later(sessions: Iterable[Session]) -> LaterTables:
    numbers: dict[str, int] = {}
    steps: list[AccessStep] = []
    after: dict[int, _LaterCounter] = {}
    within: dict[tuple[int, int], _LaterCounter] = {}
    for session in sessions:
        for step in session:
            number = numbers.setdefault(step.file, len(numbers))
            if number == len(steps):
                steps.append(step)
            steps[number] = step
        _note_session(session, numbers, after, within)
    return LaterTables(
        steps,
        {number: note.kept() for number, note in after.items()},
        {mark * len(steps) + number: note.kept() for (mark, number), note in within.items()},
    )


def _note_session(
    session: Session,
    numbers: dict[str, int],
    after: dict[int, _LaterCounter],
    within: dict[tuple[int, int], _LaterCounter],
) -> None:
    marks: Session = []
    blind: dict[tuple[int | None, int], int] = {}  # up to where a context has looked: what it sees twice counts once
    row = [numbers[step.file] for step in session]
    for place, (step, number) in enumerate(zip(session, row, strict=True)):
        if step.is_mark:
            marks = under(marks, step)
        end = place + 1 + (AHEAD_OF_MARK if step.is_mark else AHEAD)
        # Each once, in a fixed order.
        coming = dict.fromkeys(row[at] for at in range(place + 1, min(end, len(row))) if not session[at].is_mark)
        if place >= blind.get((None, number), 0):
            blind[None, number] = end
            after.setdefault(number, _LaterCounter()).add(coming)
        for mark in (numbers[one.file] for one in marks):
            if place >= blind.get((mark, number), 0):
                blind[mark, number] = end
                within.setdefault((mark, number), _LaterCounter()).add(coming)
