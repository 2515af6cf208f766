"""`blend`: a weighted mixture of other predictors, its weights learned on held-back sessions."""

from collections.abc import Sequence

from aliquot.learn.predictor import MAX_GUESSES, Guess, Predictor
from aliquot.learn.scoring import HeldOutStep
from aliquot.learn.steps import History

_ROUNDS = 40
_UNNAMED = 1e-5  # what a predictor gives to a file that it does not name


class BlendPredictor:
    name = "blend"

    def __init__(self, parts: Sequence[Predictor], weights: Sequence[float]) -> None:
        self.parts = tuple(parts)
        self.weights = tuple(weights)

    def predict(self, history: History, top: int = MAX_GUESSES) -> list[Guess]:
        return self.mixed([part.predict(history) for part in self.parts], top)

    def predict_many(self, histories: Sequence[History], top: int = MAX_GUESSES) -> list[list[Guess]]:
        answers = [part.predict_many(histories) for part in self.parts]
        return [self.mixed(together, top) for together in zip(*answers, strict=True)]

    def mixed(self, together: Sequence[Sequence[Guess]], top: int = MAX_GUESSES) -> list[Guess]:
        likely: dict[str, float] = {}
        for guesses, weight in zip(together, self.weights, strict=True):
            for file, probability in guesses:
                likely[file] = likely.get(file, 0.0) + weight * probability
        best = sorted(likely.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
        return [Guess(file, probability) for file, probability in best]


def fit_weights(answers: Sequence[Sequence[Sequence[Guess]]], asked: Sequence[HeldOutStep]) -> list[float]:
    """The weights under which what came is most likely, by expectation and maximisation; an answer list a part."""
    rows = list(zip(*(_chances(part, asked) for part in answers), strict=True))
    weights = [1 / len(answers)] * len(answers)
    for _ in range(_ROUNDS if rows else 0):
        sums = [0.0] * len(answers)
        for row in rows:
            shares = [weight * chance for weight, chance in zip(weights, row, strict=True)]
            whole = sum(shares)
            for number, share in enumerate(shares):
                sums[number] += share / whole
        weights = [total / len(rows) for total in sums]
    return weights


def _chances(answers: Sequence[Sequence[Guess]], asked: Sequence[HeldOutStep]) -> list[float]:
    """What a part gave to each file that came."""
    return [
        max(_UNNAMED, next((guess.probability for guess in guesses if guess.file == place.file), 0.0))
        for guesses, place in zip(answers, asked, strict=True)
    ]
