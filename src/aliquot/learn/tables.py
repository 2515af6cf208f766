"""Count which files follow which steps in sessions, for the predictors `popular`, `markov1` and `markov2`.

Marks of begins and calls are contexts, but no followers: whatever lies between two files, the second one followed the
first. Otherwise a mark between them would hide which file follows which.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from aliquot.learn.steps import AccessStep, Session, marks_after

MAX_FOLLOWERS = 32  # per context
MIN_PAIR_COUNT = 2  # a rarer pair of steps is not kept
END = -1  # the end of a session: counted as a follower, never predicted

_Counts: TypeAlias = dict[int, dict[int, int]]
_Pairs: TypeAlias = dict[tuple[int, int], dict[int, int]]


class Followers(Struct, frozen=True, array_like=True, gc=False):
    """The files that followed a context: their number, how many different ones, and the most frequent."""

    total: int
    distinct: int
    files: list[int]
    counts: list[int]


class Tables(Struct, frozen=True, array_like=True):
    """The counts of all contexts, stored in a version.

    Steps are numbered in the order of their first occurrence. The key of a pair is `first * len(steps) + second`.
    """

    steps: list[AccessStep]  # each as last seen, because sizes change
    counts: list[int]  # occurrences of each step
    after_one: dict[int, Followers]
    after_two: dict[int, Followers]
    under_mark: dict[int, Followers]  # by the pair of a mark and a step under it

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tables":
        """Decode stored tables. Raises `msgspec.DecodeError`."""
        return msgspec.msgpack.decode(data, type=cls)


def count(sessions: Iterable[Session]) -> Tables:
    """Count the followers of each step, each pair of steps, and each file under a mark."""
    numbers: dict[str, int] = {}
    seen: list[AccessStep] = []
    counts: list[int] = []
    ones: _Counts = {}
    twos: _Pairs = {}
    under_mark: _Pairs = {}
    for session in sessions:
        before = last = END  # the last two files
        marks: Session = []  # that the next step is under
        fresh: list[int] = []  # marks after which no file was opened yet
        for step in [*session, None]:
            if step is None:
                number = END
            else:
                number = numbers.setdefault(step.file, len(numbers))
                if number == len(seen):
                    seen.append(step)
                    counts.append(0)
                seen[number] = step
                counts[number] += 1
                if step.is_mark:
                    marks = marks_after(marks, step)
                    fresh.append(number)
                    continue
            _count_follower(ones, last, number)
            _count_pair(twos, before, last, number)
            for mark in fresh:
                _count_follower(ones, mark, number)
                _count_pair(twos, last, mark, number)
            for above in () if fresh else marks:
                _count_pair(under_mark, numbers[above.file], last, number)
            before, last, fresh = last, number, []
    return Tables(
        seen,
        counts,
        {one: _kept(after) for one, after in ones.items()},
        _pairs(twos, len(seen)),
        _pairs(under_mark, len(seen)),
    )


def _count_follower(ones: _Counts, last: int, number: int) -> None:
    if last != END:
        after = ones.setdefault(last, {})
        after[number] = after.get(number, 0) + 1


def _count_pair(pairs: _Pairs, first: int, last: int, number: int) -> None:
    if END not in {first, last}:
        after = pairs.setdefault((first, last), {})
        after[number] = after.get(number, 0) + 1


def _pairs(counted: _Pairs, steps: int) -> dict[int, Followers]:
    return {
        first * steps + second: _kept(after)
        for (first, second), after in counted.items()
        if sum(after.values()) >= MIN_PAIR_COUNT
    }


def _kept(after: dict[int, int]) -> Followers:
    best = sorted(((file, count) for file, count in Counter(after).items() if file != END), key=_most_first)[
        :MAX_FOLLOWERS
    ]
    return Followers(sum(after.values()), len(after), [file for file, _ in best], [count for _, count in best])


def _most_first(pair: tuple[int, int]) -> tuple[int, int]:
    return -pair[1], pair[0]
