"""Counts of what follows what in the sessions that were seen: what `popular` and the Markov predictors rest on."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from aliquot.learn.steps import Session, Step

KEPT = 32  # followers that are kept of each context
LEAST_PAIRS = 2  # a pair of steps seen but once says no more than its last one
END = -1  # a session's end follows, too: it is counted, and never guessed

_Counts: TypeAlias = dict[int, dict[int, int]]


class Followers(Struct, frozen=True, array_like=True, gc=False):
    """What came after a context: how often anything did, how many kinds, and the most frequent of them."""

    total: int
    kinds: int
    files: list[int]
    counts: list[int]


class Tables(Struct, frozen=True, array_like=True):
    """Steps are numbered in the order in which they were first seen; a pair is `first * len(steps) + second`."""

    steps: list[Step]  # as last seen: sizes change
    counts: list[int]  # how often each was seen
    after_one: dict[int, Followers]
    after_two: dict[int, Followers]

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tables":
        """Raises `msgspec.DecodeError`."""
        return msgspec.msgpack.decode(data, type=cls)


def count(sessions: Iterable[Session]) -> Tables:
    numbers: dict[str, int] = {}
    seen: list[Step] = []
    counts: list[int] = []
    ones: _Counts = {}
    twos: dict[tuple[int, int], dict[int, int]] = {}
    for session in sessions:
        before = last = END
        for step in session:
            number = numbers.setdefault(step.file, len(numbers))
            if number == len(seen):
                seen.append(step)
                counts.append(0)
            seen[number] = step
            counts[number] += 1
            _note(ones, twos, before, last, number)
            before, last = last, number
        _note(ones, twos, before, last, END)
    return Tables(
        seen,
        counts,
        {one: _kept(after) for one, after in ones.items()},
        {
            first * len(seen) + second: _kept(after)
            for (first, second), after in twos.items()
            if sum(after.values()) >= LEAST_PAIRS
        },
    )


def _note(ones: _Counts, twos: dict[tuple[int, int], dict[int, int]], before: int, last: int, number: int) -> None:
    if last != END:
        after = ones.setdefault(last, {})
        after[number] = after.get(number, 0) + 1
        if before != END:
            after = twos.setdefault((before, last), {})
            after[number] = after.get(number, 0) + 1


def _kept(after: dict[int, int]) -> Followers:
    best = sorted(((file, count) for file, count in Counter(after).items() if file != END), key=_most_first)[:KEPT]
    return Followers(sum(after.values()), len(after), [file for file, _ in best], [count for _, count in best])


def _most_first(pair: tuple[int, int]) -> tuple[int, int]:
    return -pair[1], pair[0]
