"""The predictors `popular`, `markov1` and `markov2`: the next step from counts after the last one or two steps.

Probabilities use Witten-Bell smoothing. A context seen N times with T different followers gives N / (N + T) to these
followers and T / (N + T) to the shorter context. A step that always came next has the probability N / (N + 1), which
exceeds the threshold of 0.75 from the fourth time on. The contexts, from general to specific, are: all steps, the last
step, the last two steps, the last step under the current call, and the last step under the user's call.
"""

from heapq import nsmallest

from aliquot.learn.predictor import MAX_GUESSES, Guess, SequentialPredictor
from aliquot.learn.steps import History, marks_of
from aliquot.learn.tables import Followers, Tables


class PopularPredictor(SequentialPredictor):
    """Predicts the most frequent files, whatever the history."""

    name = "popular"

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._all = sum(tables.counts)
        known = nsmallest(MAX_GUESSES, range(len(tables.counts)), key=lambda number: (-tables.counts[number], number))
        self.best = {number: tables.counts[number] / self._all for number in known if not tables.steps[number].is_mark}
        self._guesses = [Guess(tables.steps[number].file, share) for number, share in self.best.items()]

    def share(self, number: int) -> float:
        return self._tables.counts[number] / self._all

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        return self._guesses[:top]


class MarkovPredictor(SequentialPredictor):
    """Predicts from the counts after the last step, or with order 2 also after the last two."""

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
        last = self._numbers.get(history[-1].file) if history else None
        after = None if last is None else self._tables.after_one.get(last)
        if last is None or after is None:
            return self._popular.best
        likely = self._blended(after, self._popular.best)
        if self._order > 1 and len(history) > 1:
            under_mark = [(mark, self._tables.under_mark) for mark in marks_of(history)]
            for step, pairs in ((history[-2], self._tables.after_two), *under_mark):
                first = self._numbers.get(step.file)
                pair = None if first is None else pairs.get(first * len(self._numbers) + last)
                if pair is not None:
                    likely = self._blended(pair, likely)
        return likely

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
