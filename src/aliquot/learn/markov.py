"""The predictors `popular`, `markov1` and `markov2`: the next step from counts after the last one or two steps.

Probabilities use Witten-Bell smoothing. A context seen N times with T different followers gives N / (N + T) to these
followers and T / (N + T) to the shorter context. A step that always came next has the probability N / (N + 1), which
exceeds the threshold of 0.75 from the fourth time on. The contexts, from general to specific, are: all files, the last
file, the last two files, and the last file under the current call and under the user's call. Directly after a mark the
last contexts are the mark itself, and the file before it together with the mark.
"""

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from itertools import takewhile

from aliquot.learn.predictor import MAX_GUESSES, Guess, SequentialPredictor
from aliquot.learn.steps import WINDOW, History, marks_of
from aliquot.learn.tables import Followers, Tables


class PopularPredictor(SequentialPredictor):
    """Predicts the most frequent files, whatever the history."""

    name = "popular"

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        files = [number for number, step in enumerate(tables.steps) if not step.is_mark]
        self._all = max(1, sum(tables.counts[number] for number in files))
        known = nsmallest(MAX_GUESSES, files, key=lambda number: (-tables.counts[number], number))
        self.best = {number: tables.counts[number] / self._all for number in known}
        self._guesses = [Guess(tables.steps[number].file, share) for number, share in self.best.items()]

    def share(self, number: int) -> float:
        return self._tables.counts[number] / self._all

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        return self._guesses[:top]


class MarkovPredictor(SequentialPredictor):
    """Predicts from the counts after the last file and mark, or with order 2 also after the last two."""

    def __init__(self, tables: Tables, order: int) -> None:
        self.name = f"markov{order}"
        self._order = order
        self._tables = tables
        self._numbers = {step.file: number for number, step in enumerate(tables.steps)}
        self._popular = PopularPredictor(tables)

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        likely = self._likely(history)
        best = sorted(likely.items(), key=_most_likely_first)[:top]
        steps = self._tables.steps
        return [Guess(steps[number].file, probability) for number, probability in best]

    def _likely(self, history: History) -> dict[int, float]:
        likely = self._popular.best
        for after in self._contexts(history):
            if after is not None:
                likely = self._blended(after, likely)
        return likely

    def _contexts(self, history: History) -> Iterator[Followers | None]:
        """Yield the counts of each context of the history, from general to specific."""
        tables, numbers = self._tables, self._numbers
        files = [step for step in history[-WINDOW:] if not step.is_mark][-2:]
        last = numbers.get(files[-1].file) if files else None
        fresh = list(takewhile(lambda step: step.is_mark, reversed(history[-WINDOW:])))[::-1]
        if last is not None:
            yield tables.after_one.get(last)
            if self._order > 1 and len(files) > 1:
                yield self._pair(tables.after_two, numbers.get(files[0].file), last)
        for mark in (numbers.get(step.file) for step in fresh):
            yield None if mark is None else tables.after_one.get(mark)
            if self._order > 1:
                yield self._pair(tables.after_two, last, mark)
        if self._order > 1 and not fresh:
            for step in marks_of(history):
                yield self._pair(tables.under_mark, numbers.get(step.file), last)

    def _pair(self, pairs: Mapping[int, Followers], first: int | None, second: int | None) -> Followers | None:
        return None if first is None or second is None else pairs.get(first * len(self._numbers) + second)

    def _blended(self, after: Followers, shorter: dict[int, float]) -> dict[int, float]:
        """Combine the context's own counts with the probabilities of the shorter context."""
        seen_or_new = after.total + after.distinct
        left = after.distinct / seen_or_new
        likely = {number: left * probability for number, probability in shorter.items()}
        share = self._popular.share
        for number, count in zip(after.files, after.counts, strict=True):
            known = likely.get(number)
            likely[number] = count / seen_or_new + (left * share(number) if known is None else known)
        return likely


def _most_likely_first(pair: tuple[int, float]) -> tuple[float, int]:
    return -pair[1], pair[0]
