"""Counts of what follows what in the sessions that were seen: what `popular` and the Markov predictors rest on."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from aliquot.learn.steps import AccessStep, Session, under

MAX_FOLLOWERS = 32  # followers that are kept of each context
MIN_PAIR_COUNT = 2  # a pair of steps seen but once says no more than its last one
END = -1  # a session's end follows, too: it is counted, and never guessed

_Counts: TypeAlias = dict[int, dict[int, int]]
_Pairs: TypeAlias = dict[tuple[int, int], dict[int, int]]


class Followers(Struct, frozen=True, array_like=True, gc=False):
    """What came after a context: how often anything did, how many kinds, and the most frequent of them."""

    total: int
    kinds: int
    files: list[int]
    counts: list[int]


class Tables(Struct, frozen=True, array_like=True):
    """Steps are numbered in the order in which they were first seen; a pair is `first * len(steps) + second`."""

    steps: list[AccessStep]  # as last seen: sizes change
    counts: list[int]  # how often each was seen
    after_one: dict[int, Followers]
    after_two: dict[int, Followers]
    within: dict[int, Followers]  # by a mark that a step stands under, and the step

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tables":
        """Raises `msgspec.DecodeError`."""
        return msgspec.msgpack.decode(data, type=cls)


def count(sessions: Iterable[Session]) -> Tables:
    numbers: dict[str, int] = {}
    seen: list[AccessStep] = []
    counts: list[int] = []
    ones: _Counts = {}
    twos: _Pairs = {}
    within: _Pairs = {}
    for session in sessions:
        before = last = END
        marks: Session = []
        for step in session:
            number = numbers.setdefault(step.file, len(numbers))
            if number == len(seen):
                seen.append(step)
                counts.append(0)
            seen[number] = step
            counts[number] += 1
            _note(ones, last, number)
            _note_pair(twos, before, last, number)
            for mark in marks:
                _note_pair(within, numbers[mark.file], last, number)
            before, last = last, number
            if step.is_mark:
                marks = under(marks, step)
        _note(ones, last, END)
        _note_pair(twos, before, last, END)
        for mark in marks:
            _note_pair(within, numbers[mark.file], last, END)
    return Tables(
        seen,
        counts,
        {one: _kept(after) for one, after in ones.items()},
        _pairs(twos, len(seen)),
        _pairs(within, len(seen)),
    )


def _note(ones: _Counts, last: int, number: int) -> None:
    if last != END:
        after = ones.setdefault(last, {})
        after[number] = after.get(number, 0) + 1


def _note_pair(pairs: _Pairs, first: int, last: int, number: int) -> None:
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
